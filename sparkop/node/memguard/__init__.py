"""Kills the ranks of this node before its memory ends. Runs in a container from the engine's image, or as
a unit of the node (node/units.py).

Stdlib-only, Python 3.9 or newer (pidfd). At zero available memory the machine stops answering, instead of
the container ending; so the ranks are killed while something is left. One thread (`guard`) reads memory,
decides and kills through descriptors that are open already; it never waits for Docker or a full disk. A
second one (`watcher`) asks Docker which ranks run, writes the log and the heartbeat. In the state folder:

``trip.json``      written and synced before the kill: the same numbers are not launched again unasked
``memguard.json``  the heartbeat, each ten seconds: phase, memory, floors, the last minutes
``memguard.log``   what happened, rotated
``memguard.lock``  held by the guard that guards; a second one waits
``memguard.next.json``  written by a second one when it is ready
"""
