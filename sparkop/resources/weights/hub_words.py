"""What the hub's library raises, as BlockedError in the user's words: what, why, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sparkop.errors import BlockedError

_LOGIN = "set HF_TOKEN, or run `hf auth login`, with an account that may read it"
_BUSY = (408, 425, 429)
"""Statuses below 500 that say nothing against the question."""


@contextmanager
def in_words(name: str, revision: str, endpoint: str) -> Iterator[None]:
    """The hub's errors as BlockedError. Errors that are no one's but ours go through."""
    try:
        yield
    except Exception as error:
        told = _named(error, name, revision, endpoint) or _answered(error, name, endpoint)
        if told is None:
            raise
        raise told from None


def _named(error: Exception, name: str, revision: str, endpoint: str) -> BlockedError | None:
    """For errors that the hub itself names."""
    from huggingface_hub import errors

    match error:
        case errors.GatedRepoError():
            return BlockedError(
                f"{name} is gated: the hub does not give its files",
                cause="the model's terms are not accepted, or no token was given",
                remedy=f"accept the terms at {endpoint}/{name} and {_LOGIN}",
            )
        case errors.RepositoryNotFoundError():
            return BlockedError(
                f"the hub has no repository {name}, or hides it",
                cause="its name is wrong, or it is private",
                remedy=f"correct weights.repository, or {_LOGIN}",
            )
        case errors.RevisionNotFoundError():
            return BlockedError(
                f"{name} has no revision {revision}",
                remedy="correct weights.revision: a branch, tag or commit",
            )
        case errors.OfflineModeIsEnabled() | errors.LocalEntryNotFoundError():
            return BlockedError("the hub can't be asked: offline mode is on", remedy="unset HF_HUB_OFFLINE")
        case errors.HFValidationError():
            return BlockedError(
                f"{name} can't be the name of a repository",
                cause=_first_line(error),
                remedy="correct weights.repository: owner/name, as the model's page shows it",
            )
        case errors.EntryNotFoundError():
            return BlockedError(
                f"the hub has no page for {name}",
                cause=_first_line(error),
                remedy="correct weights.repository: owner/name, as the model's page shows it",
            )
    return None


def _answered(error: Exception, name: str, endpoint: str) -> BlockedError | None:
    """For another answer than was asked for, and for none."""
    from huggingface_hub import errors

    if isinstance(error, errors.HfHubHTTPError):
        return _status(error, name, endpoint)
    if isinstance(error, ValueError):
        return BlockedError(
            f"what {endpoint} answers for {name} can't be read",
            cause=_first_line(error),
            remedy="see that weights.endpoint or HF_ENDPOINT names a hub, and no proxy answers in its place",
        )
    # The transport's errors (no route, refused, timed out) have no common class of the hub's library.
    if isinstance(error, OSError) or "httpx" in type(error).__module__:
        return BlockedError(
            f"the hub at {endpoint} can't be reached",
            cause=_first_line(error),
            remedy="check this machine's network; weights.endpoint or HF_ENDPOINT names another hub",
        )
    return None


def _status(error: Exception, name: str, endpoint: str) -> BlockedError:
    from huggingface_hub import get_token

    status = int(getattr(getattr(error, "response", None), "status_code", 0))
    if status == 401 and get_token():
        return BlockedError(
            f"the hub refuses the token that it was given ({status})",
            cause="it is wrong, or no longer valid",
            remedy="set another HF_TOKEN, or unset it and run `hf auth login`; a public model needs none",
        )
    if status in (401, 403):
        return BlockedError(f"the hub refuses {name} ({status})", remedy=_LOGIN)
    if status >= 500 or status in _BUSY:
        remedy = "try again later"
    else:
        remedy = (
            f"correct weights.repository, and see that {endpoint} (weights.endpoint, HF_ENDPOINT) is a hub"
        )
    return BlockedError(f"the hub answered {status} for {name}", remedy=remedy, detail=_first_line(error))


def _first_line(error: BaseException) -> str:
    return (str(error) or "it gave no reason").strip().splitlines()[0]
