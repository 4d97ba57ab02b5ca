"""Process 1 of a lab: tells the controller its pid, waits for the bridges, becomes tini with services.

Usage: lab_init.py SERVICES SOCKET. Runs in new mount, network and pid namespaces, all else is the machine's.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path


def main() -> None:
    controller = socket.socket(fileno=int(sys.argv[2]))
    controller.sendall(b"here")
    if controller.recv(16) != b"network":
        raise SystemExit("the controller went away before the network was there")
    controller.sendall(b"up")
    controller.close()
    supervise = str(Path(__file__).with_name("supervise.py"))
    os.execv("/usr/bin/tini", ["tini", "-g", "--", sys.executable, "-IS", supervise, sys.argv[1]])


if __name__ == "__main__":
    main()
