"""Standard output and error where nobody reads them any more: what is said is dropped, the work goes on.

``sparkop apply 2>&1 | head`` must converge, ``sparkop diff | head -1`` must keep its exit code, and what runs
must not break off because a terminal was closed. Commands that would go on for ever ask ``reader_gone``.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any

_GONE = (errno.EPIPE, errno.EIO)
"""EIO is what a terminal answers that was closed."""


class _Channel(io.FileIO):
    """A descriptor of this process that becomes /dev/null when its reader goes away."""

    gone = False

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            if error.errno not in _GONE:
                raise  # told once: what is still in the buffer has nowhere to go either
            self.gone = True
            return len(data)


def mend() -> None:
    """Make both channels forgiving; no character fails in a poor encoding."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is None:  # the descriptor was closed: a socket that got its number would be written to
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, number)
            if nowhere != number:
                os.close(nowhere)
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", closefd=False))
        elif isinstance(stream, io.TextIOWrapper):
            stream.flush()
            channel = _Channel(number, "w", closefd=False)
            mended = io.TextIOWrapper(
                io.BufferedWriter(channel),
                encoding=stream.encoding,
                errors="replace",
                line_buffering=stream.line_buffering,
                write_through=stream.write_through,
            )
            setattr(sys, name, mended)


def reader_gone() -> bool:
    """Whether nobody reads standard output any more."""
    channel = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return isinstance(channel, _Channel) and channel.gone
