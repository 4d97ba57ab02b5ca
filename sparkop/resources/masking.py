"""Keys and tokens never leave in a log line, a diff or a report: engines print their own arguments."""

from __future__ import annotations

import re

MASK = "********"

_PATTERNS = (
    # --api-key VALUE, --api-key=VALUE, api_key='VALUE', "api_key": ["VALUE"], api-key: VALUE,
    # ['--api-key', 'VALUE'], and colours anywhere between
    re.compile(
        r"""((?:admin[-_])?api[-_]key(?:\x1b\[[0-9;]*m|['"])*\s*[=:,\s]\s*\[?\s*(?:\x1b\[[0-9;]*m|['"])*)"""
        r"""([^\s'",\])}\x1b]+)""",
        re.IGNORECASE,
    ),
    re.compile(r"(\bbearer\s+)([^\s'\",]+)", re.IGNORECASE),
    re.compile(r"(\b(?:HF_TOKEN|HUGGING_FACE_HUB_TOKEN)['\"]?\s*[=:]\s*['\"]?)([^\s'\",]+)"),
    re.compile(r"(\b)(hf_[A-Za-z0-9]{16,})"),
)
_HARMLESS = {"none", "null", "[]", "true", "false"}

ON_NODES = {
    "masks": [[p.pattern, not p.flags & re.IGNORECASE] for p in _PATTERNS],
    "harmless": sorted(_HARMLESS),
    "mask": MASK,
}
"""The same for ``container.logs.keep``: what lies on a node is masked before it is written."""


def mask(text: str) -> str:
    """The text with everything that looks like a key or token replaced by asterisks."""
    for pattern in _PATTERNS:
        text = pattern.sub(_replacement, text)
    return text


def _replacement(found: re.Match[str]) -> str:
    return found[0] if found[2].casefold() in _HARMLESS else found[1] + MASK
