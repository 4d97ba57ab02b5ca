"""What goes wrong on the guard's threads: told once, and the thread goes on."""

from __future__ import annotations

from typing import Any, Callable


class Troubles:
    """What can't be done now, and why; ``tell`` gets a line when that begins and when its reason changes.

    Nothing that is not foreseen may end a thread of the guard: the process would go on, look well, and
    know of no rank any more.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.tell = tell
        self.open: dict[str, str] = {}

    def attempt(self, what: str, part: Callable[..., Any], *given: Any) -> Any:
        """What the part returns; None when it has failed, whatever it raised."""
        try:
            found = part(*given)
        except Exception as error:
            self.begun(what, error)
            return None
        self.open.pop(what, None)
        return found

    def begun(self, what: str, error: Exception) -> None:
        why = reason(error)
        if self.open.get(what) != why:
            self.open[what] = why
            self.tell("%s: %s; it is tried again" % (what, why))


def reason(error: Exception) -> str:
    """Of an error that nobody has foreseen its kind as well: its text alone says nothing ("3", "")."""
    return str(error) if isinstance(error, OSError) and str(error) else repr(error)
