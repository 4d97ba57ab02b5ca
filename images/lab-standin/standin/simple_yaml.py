"""The little YAML that engine configuration files use: flat keys with scalars or lists of scalars."""

from __future__ import annotations


def scalar(text: str) -> str:
    text = text.strip()
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text.split(" #")[0].rstrip()


def load(text: str) -> dict[str, list[str]]:
    """Keys with their values, each value a list (of one, for a scalar).

    Raises ValueError with the line number where a line is neither ``key: value`` nor ``- value`` below a key.
    """
    found: dict[str, list[str]] = {}
    key = ""
    for number, line in enumerate(text.splitlines(), start=1):
        bare = line.strip()
        if not bare or bare.startswith("#") or bare == "---":
            continue
        if bare.startswith("- ") and key:
            found[key].append(scalar(bare[2:]))
            continue
        name, colon, value = bare.partition(":")
        if not colon or (value and not value.startswith(" ")) or line[0].isspace():
            raise ValueError(f"line {number} is not understood")
        key = scalar(name)
        found[key] = [scalar(value)] if value.strip() else []
    return found
