"""How clients reach what is served."""

from __future__ import annotations

from sparkop.engines.common import has_key, is_open
from sparkop.engines.paths import expand, key_path
from sparkop.records import dataclass
from sparkop.resources.desired import Desired


@dataclass(frozen=True)
class Access:
    """Where the API is, and what it takes."""

    url: str
    models: tuple[str, ...]
    key_path: str | None
    """On the head; None without a key."""
    open: bool
    """The API has no key and listens to more than its own machine."""


def access_of(desired: Desired) -> Access:
    """As the spec has it, whether it runs or not."""
    spec = desired.spec
    head = desired.nodes.get(desired.head)
    return Access(
        url=f"http://{_address(desired)}:{spec.api.port}/v1",
        models=spec.api.served_names,
        key_path=expand(key_path(spec), head.home if head else "~") if has_key(spec) else None,
        open=is_open(spec),
    )


def _address(desired: Desired) -> str:
    """Where clients reach the API: the one address that it has, else the head as sparkop reaches it."""
    bind, remote = desired.spec.api.bind, desired.spec.head.remote
    if bind not in ("0.0.0.0", "::"):  # noqa: S104 (compared, not listened on)
        return f"[{bind}]" if ":" in bind else bind
    return "localhost" if remote is None else remote.host
