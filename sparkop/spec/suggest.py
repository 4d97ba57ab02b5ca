"""Did you mean: the nearest of the names that are accepted."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from functools import lru_cache


def nearest(word: str, accepted: Iterable[str]) -> str | None:
    """``did you mean x?`` after a slip of the hand, in case or hyphens; None when no name is near."""
    match = nearest_name(word, accepted)
    return f"did you mean {match}?" if match else None


def nearest_name(word: str, accepted: Iterable[str]) -> str | None:
    """The name alone."""
    names = list(accepted)
    if len(word) > 100:
        return None
    plain = {_plain(name): name for name in reversed(names)}
    if _plain(word) in plain:
        return plain[_plain(word)]
    longer = [name for name in names if len(word) > 2 and _plain(name).startswith(_plain(word))]
    if longer:
        return longer[0]
    close = get_close_matches(_plain(word), list(plain), n=1, cutoff=0.6)
    return plain[close[0]] if close else None


@lru_cache(1024)
def _plain(word: str) -> str:
    """The accepted names are the same for every key that is not."""
    return re.sub(r"[^a-z0-9]", "", word.lower())
