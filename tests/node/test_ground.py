"""Every name that sparkop writes into a state folder is known to be ours: else apply refuses the folder, and
destroy leaves the file, as somebody's."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import sparkop
from sparkop.node import ground

ROOT = Path(sparkop.__file__).parent
STATE = re.compile(r"(.*\.)?_?state(_directory\(.*\))?|request\.folder")
"""What the code calls a state folder."""
STAND_INS = re.compile(r"lab/|hosts/simulated")
OTHERS = {"weights.json", "run"}
"""In a folder whose name is handed over; as a rank sees it."""


def paths(tree: ast.AST) -> Iterator[list[ast.expr]]:
    """The parts below the state folder, of ``f"{state}/..."``, ``os.path.join(state, ...)`` and of a
    ``{"path": ...}`` for an effect, which may be relative to it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.FormattedValue):
            first, *rest = (p.value if isinstance(p, ast.FormattedValue) else p for p in node.values)
            if STATE.fullmatch(ast.unparse(first)):
                yield rest
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "os.path.join":
            if STATE.fullmatch(ast.unparse(node.args[0])):
                yield node.args[1:]
        elif isinstance(node, ast.Dict):
            found = (value for key, value in zip(node.keys, node.values, strict=True) if is_path(key))
            yield from ([value] for value in found)


def is_path(key: ast.expr | None) -> bool:
    return isinstance(key, ast.Constant) and key.value == "path"


def text(module: ModuleType, part: ast.expr) -> str:
    """Of a constant, also one of the module; nothing for what only a run tells."""
    if isinstance(part, ast.Constant):
        return str(part.value)
    if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
        return str(getattr(getattr(module, part.value.id, None), part.attr, ""))
    return str(getattr(module, part.id, "")) if isinstance(part, ast.Name) else ""


def names_of(source: Path) -> Iterator[str]:
    """What a module writes or reads at the top of a state folder."""
    found = list(paths(ast.parse(source.read_text(encoding="utf-8"))))
    name = ".".join(source.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")
    module = importlib.import_module(name) if found else ast
    for parts in found:
        first = next(filter(None, (text(module, part).strip("/") for part in parts[:2])), "")
        if re.match(r"[a-z.]", first):
            yield first.partition("/")[0]


def test_every_name_in_the_source_is_known_to_be_ours() -> None:
    """bench.json was not: what a bench had left made a folder somebody's."""
    sources = [path for path in ROOT.rglob("*.py") if not STAND_INS.match(str(path.relative_to(ROOT)))]
    found = {name for source in sorted(sources) for name in names_of(source)}
    assert found >= {"bench.json", "history.json", "units", "transfer", "memguard.log", "incidents", "plans"}
    assert ground.foreign(sorted(found - OTHERS), [], "/state") == []
