"""Values that YAML reads in a way that their writer did not mean, in the words of the field they stand in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sparkop.spec.fields import alternatives, field_at, takes_only_text
from sparkop.spec.problems import Problem
from sparkop.spec.scalars import shown, trap_of
from sparkop.spec.tree import Found, Node, Path, Scalar, follow, leaves


def name_traps(problems: Sequence[Problem], root: Node) -> list[Problem]:
    """Give problems of the text the path of their value, and the advice that fits the field."""
    values = {node.place: (path, node) for path, node in leaves(root) if isinstance(node, Scalar)}
    named = []
    for problem in problems:
        path, node = values.get(problem.place, ((), None))
        trap = trap_of(node.raw) if node is not None and node.plain else None
        field = field_at(path, root) if trap is not None else None
        if trap is not None and trap[0] == problem.message and field is not None:
            if takes_only_text(field.annotation):
                problem = replace(problem, suggestion=f'quote it: "{node.raw}"' if node else None)
            elif trap[1] is not None and str not in alternatives(field.annotation):
                problem = replace(problem, suggestion=f"write {trap[1]}")
            problem = replace(problem, path=path)
        named.append(problem)
    return named


def number_traps(root: Node) -> Iterator[Problem]:
    """Plain numbers where only text belongs, which the model would take in another spelling."""
    for path, node in leaves(root):
        if not isinstance(node, Scalar) or not node.plain or isinstance(node.value, bool):
            continue
        if isinstance(node.value, float) or (isinstance(node.value, int) and str(node.value) != node.raw):
            field = field_at(path, root)
            if field is not None and takes_only_text(field.annotation):
                yield reads_as(node, path, follow(root, path))


def reads_as(node: Scalar, path: Path, found: Found) -> Problem:
    """A number, truth value or nothing where only text belongs."""
    what = {bool: "a truth value", type(None): "nothing"}.get(type(node.value), "a number")
    if isinstance(node.value, float) and "e" in node.raw.lower():
        what = "a number (e means times ten to the power of)"
    return Problem(
        found.place,
        f"{shown(node)} reads as {what}; text is wanted",
        path,
        suggestion=f'quote it: "{shown(node)}"',
        defined=found.defined,
    )
