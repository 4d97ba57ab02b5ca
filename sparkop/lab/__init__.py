"""Real hosts on one Linux machine, by namespaces: sshd, Docker, a registry, a hub, and faults.

A host is a set of namespaces with its own disk image, nested in the lab's; the lab's process 1 is the root
of all. Ending it ends everything, and the kernel takes mounts, network cards and loop devices with it. Only
control groups and files remain, and ``down`` removes them. Nothing is in the machine's own network
namespace, and the lab's has no way out.
"""
