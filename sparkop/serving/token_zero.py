"""Two things that look alike in SGLang's log and answers, and are not. Pure.

* TileLang warns at compilation that it can't prove the stores of the QSA indexer to be disjoint. They are:
  the warning stands in the logs of groups that serve well, and of those that do not.
* Token 0 (``!``) for ever, with HTTP 200, is a fault: of the attention kernel, or of a prefix cache that
  holds such an answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from sparkop.records import dataclass
from sparkop.serving.canary import EndpointState, Serving
from sparkop.spec.engines import SglangEngine
from sparkop.spec.models import ClusterSpec

TOKEN = "!"  # noqa: S105 - what token 0 reads as
_WARNING = re.compile(r"`?Logits\(bx, position\)`?\s*is written by multiple threads in loop \(token,?\)")
_HARMLESS = (
    "harmless: TileLang's warning on `Logits(bx, position)` in the log: each thread writes places of its "
    "own, which its checker can't prove"
)


@dataclass(frozen=True)
class Explained:
    """Why the answers are no answers, and what to do."""

    cause: str
    remedy: str
    restart_helps: bool = False
    """A new start of all ranks is all that has to be done, whoever does it."""
    starts_anew: bool = False
    """The remedy begins with a new start: nothing to say while none is due."""


def is_harmless(line: str) -> bool:
    """Whether a log line is TileLang's warning on the indexer, and no other race."""
    return _WARNING.search(line) is not None


def harmless(lines: Iterable[str]) -> str:
    """What to say of the warning when it is among the lines; else empty."""
    return _HARMLESS if any(map(is_harmless, lines)) else ""


def is_token_zero(text: str) -> bool:
    """Whether a text is nothing but token 0, more than once."""
    said = "".join(text.split())
    return len(said) > 1 and set(said) == {TOKEN}


def explain(spec: ClusterSpec, state: EndpointState) -> Explained | None:
    """Of answers that repeat one token or are empty; None for every other state of the API."""
    if state.serving is not Serving.DEGENERATE:
        return None
    return explain_text(spec, state.text)


def explain_text(spec: ClusterSpec, text: str) -> Explained:
    """The same, of an answer that has been found to be no answer."""
    again = "sparkop apply starts all ranks again, which empties the prefix cache"
    if not isinstance(spec.engine, SglangEngine) or not is_token_zero(text):
        cause = "the prefix cache may hold an answer that went wrong"
        return Explained(cause, again, restart_helps=True, starts_anew=True)
    if spec.image.build is None:
        return Explained(
            f"token 0: the image {spec.image.reference} is used as it is, and its sparse attention may have "
            "no kernel for SM121 (unpatched), or one that emits token 0 at long context (widened)",
            "name image.build (context sglang-sm121) instead of image.reference, then sparkop apply; it "
            "refuses a backend that it can't make right",
        )
    return Explained(
        "token 0: the backend was checked when the image was built, so rather a prefix cache that holds such "
        "an answer, or thinking with tools",
        f"{again}; if it comes back with tools, set engine.thinking: false, or a temperature of 0.7 or lower",
        starts_anew=True,
    )
