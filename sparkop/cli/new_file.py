"""A file that a command makes where the user says: never in place of another."""

from __future__ import annotations

from pathlib import Path

from sparkop.errors import UsageError


def write_new(path: Path, text: str) -> None:
    """Raises UsageError when there is a file already, or none can be made there."""
    try:
        with path.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise UsageError(f"{path} exists", remedy="name another file, or move it away") from None
    except OSError as error:
        raise UsageError(f"{path} can't be written: {error.strerror}") from None
