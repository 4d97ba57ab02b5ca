"""Structured events of ``watch`` on stdout: lines for a person, or one JSON document a line."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from sparkop.plain import plain
from sparkop.reconcile.launcher import LauncherLog
from sparkop.resources.masking import mask

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from sparkop.reconcile.watch.say import Say


def watch_events(output: str = "text") -> Say:
    """A structlog logger; every text is masked. ``output``: ``text`` or ``json``."""
    import structlog

    render: Any = (
        structlog.processors.JSONRenderer(ensure_ascii=False)
        if output == "json"
        else structlog.dev.ConsoleRenderer(colors=False, pad_event_to=0)
    )
    structlog.configure(
        processors=[
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="timestamp"),
            _masked,
            render,
        ],
        logger_factory=structlog.WriteLoggerFactory(file=sys.stdout),
        cache_logger_on_first_use=True,
    )
    logger = structlog.get_logger()

    def say(event: str, **fields: Any) -> None:
        logger.info(event, **{name: value for name, value in fields.items() if value is not None})

    return say


def logged(say: Say, cluster: str) -> Say:
    """The same, and each event is a line of the launcher's log."""
    log = LauncherLog(cluster)

    def both(event: str, **fields: Any) -> None:
        say(event, **fields)
        told = (f"{name}={value}" for name, value in fields.items() if value is not None)
        log.write(" ".join(" ".join(("watch:", event, *told)).split()))

    return both


def _masked(_logger: Any, _name: str, fields: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for name, value in fields.items():
        if isinstance(value, str):
            fields[name] = mask(plain(" ".join(value.split())))
    return fields
