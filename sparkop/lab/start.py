"""Start a process 1 of new namespaces and learn its pid, without searching for it.

The new process sends one message over an inherited socket; the kernel adds its credentials and translates
the pid into the controller's pid namespace.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

from sparkop.lab.layout import LabError
from sparkop.records import dataclass

START_SECONDS = 60.0


@dataclass
class Init:
    """A process 1 that is being started: ``pid`` as the controller sees it, ``outer`` its parent outside."""

    pid: int
    outer: int
    talk: socket.socket
    log: Path

    def network_is_there(self) -> None:
        """Let it go on; returns when it is about to start its services.

        Raises LabError with the end of its log when it fails.
        """
        with contextlib.suppress(ConnectionError):  # it died: the next line says so, with its log
            self.talk.sendall(b"network")
        _expect(self.talk, b"up", self.log)
        self.talk.close()


def start_init(argv: Sequence[str], log: Path) -> Init:
    """Run ``argv`` with a socket's number as one more argument; wait until its process 1 says "here".

    Raises LabError with the end of the log when it fails.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    ours.settimeout(START_SECONDS)
    log.parent.mkdir(parents=True, exist_ok=True)
    with theirs, log.open("ab") as output:
        process = subprocess.Popen(
            [*argv, str(theirs.fileno())], pass_fds=(theirs.fileno(),), start_new_session=True, cwd="/",
            stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        )  # fmt: skip
    threading.Thread(target=process.wait, daemon=True).start()  # no zombie when it ends before this program
    return Init(_expect(ours, b"here", log), process.pid, ours, log)


def _expect(talk: socket.socket, word: bytes, log: Path) -> int:
    try:
        said, ancillary, _, _ = talk.recvmsg(64, socket.CMSG_SPACE(struct.calcsize("3i")))
    except (TimeoutError, ConnectionError):
        said, ancillary = b"", []
    if said != word:
        raise LabError(
            f"a process of the lab did not start: no {word.decode()!r} from it",
            detail=log.read_text(errors="replace")[-2000:],
        )
    pid: int = struct.unpack("3i", ancillary[0][2])[0]
    return pid
