"""Gives SGLang's QSA backend the SM121 fallback kernel, where it has none (row B3).

    python3 patch_backend.py FILE [--check]

FILE is `qwen_sparse_attn_backend.py`. Two of its functions choose kernels, and their shape differs from one
SGLang version to the next. Text anchors are not enough: one that fits the old shape also fits newer files,
where what is inserted there is never reached. So both functions are walked, statement by statement, for a GPU
of each kind, and the walk says which kernel a GPU gets:

  legacy   on SM121 flash_attn is tried first, which does not run there: patched
  patched  by this program, earlier: left as it is
  native   SM121 has a kernel of SGLang's own: not needed, left as it is
  widened  SM121 gets TRT-LLM's sparse decode, which silently emits token 0 at long context: refused
  unknown  anything else: refused, with the file's hash and the functions' text

What is inserted returns the fallback when is_sm100_supported() is false: the recipe's rule, which takes in
Hopper too. Afterwards the file is compiled, parsed again and walked again: SM121 gets the fallback before any
import of flash_attn, SM100 the same as before, and without the inserted lines the file is what it was.

Exit codes: 0 patched, or nothing to do; 1 legacy, with --check; 2 wrong usage; 3 widened; 4 unknown; 5 the
file can't be read, written or parsed, or the patch could not be proven (then nothing is written).

Python's standard library only: it runs while the image is built.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import enum
import hashlib
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

VARLEN = "_resolve_flash_attn_varlen_func"
TRTLLM = "_resolve_trtllm_sparse_decode"
TRTLLM_KERNEL = "trtllm_batch_decode_with_kv_cache"
UTILITIES = ("sglang.srt.utils", "sglang.srt.utils.common")
"""Modules whose questions about the GPU are understood."""
GATE = "is_sm100_supported"
NATIVE_NAME = "qwen38_qsa_sm121_varlen"
FALLBACK_MODULE = "sglang.srt.layers.attention.qsa_fa_fallback"
FALLBACK_NAME = "qsa_varlen_attention"

SM100: Mapping[str, bool] = {
    GATE: True, "is_sm120": False, "is_sm120_supported": False, "is_sm121": False,
    "is_blackwell_supported": True, "is_sm90_supported": False, "is_cuda": True, "is_hip": False,
}  # fmt: skip
SM121: Mapping[str, bool] = {
    GATE: False, "is_sm120": False, "is_sm120_supported": True, "is_sm121": True,
    "is_blackwell_supported": True, "is_sm90_supported": False, "is_cuda": True, "is_hip": False,
}  # fmt: skip
"""What SGLang's questions answer on a GB10. is_sm120 asks for 12.0 exactly, is_sm120_supported for 12.x."""

INSERTED = (
    f"from {UTILITIES[0]} import {GATE}",
    "",
    f"if not {GATE}():",
    f"    from {FALLBACK_MODULE} import {FALLBACK_NAME}",
    "",
    f"    return {FALLBACK_NAME}",
)

ROCM = "is_hip"
"""A question about the maker: it tells no GPU of NVIDIA from another."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
TUPLE_WORDS = frozenset({"isinstance", "len", "list", "tuple", "type"})
"""Python's own words by which a wrapper takes the first of several results."""
INSTEAD = "Name another base in image.build.base; an image that needs no patch, in image.reference."
CACHES = ("functools.lru_cache", "functools.cache")
MOST_WAYS = 1000
"""Ways through a function that are followed: every condition that is not understood doubles them."""
LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
"""A line as Python counts them: a form feed ends none."""

NOTHING = "None"
FAILS = "an exception"
UNCLEAR = "unclear"


class Shape(enum.Enum):
    """What the backend source is; see the module's text."""

    LEGACY = "legacy"
    PATCHED = "patched"
    NATIVE = "native"
    WIDENED = "widened"
    UNKNOWN = "unknown"


class Unproven(Exception):  # noqa: N818
    """The patched source is not what it should be."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One way through a function: the modules that it imported, in order, and what it returns.

    The result is a dotted name, a wrapper ("wrapper of a.b"), NOTHING, FAILS or UNCLEAR.
    """

    imported: tuple[str, ...]
    result: str
    unsure: bool = False
    """A condition on the way was not understood: no GPU may go this way."""


@dataclasses.dataclass(frozen=True)
class State:
    """Names known at a point of a function: their dotted origin, and the modules imported so far."""

    names: Mapping[str, str]
    imported: tuple[str, ...] = ()
    unsure: bool = False

    def bind(self, name: str, origin: str) -> State:
        return dataclasses.replace(self, names={**self.names, name: origin})

    def take(self, node: ast.Import | ast.ImportFrom) -> State:
        """After the import."""
        state = self
        for alias in node.names:
            if isinstance(node, ast.Import):
                module, origin = alias.name, alias.name if alias.asname else alias.name.partition(".")[0]
                name = alias.asname or origin
            else:
                module = "." * node.level + (node.module or "")
                origin, name = f"{module}.{alias.name}", alias.asname or alias.name
            state = dataclasses.replace(state.bind(name, origin), imported=(*state.imported, module))
        return state


@dataclasses.dataclass(frozen=True)
class Walk:
    """Follows a resolver's statements on one kind of GPU; both ways where a condition is not understood."""

    gpu: Mapping[str, bool]

    def run(self, body: Sequence[ast.stmt], state: State) -> Iterator[tuple[State, str | None]]:
        """States in which the statements end, with what they return; None when they run to their end."""
        if not body:
            yield state, None
            return
        for after, result in self._one(body[0], state):
            if result is None:
                yield from self.run(body[1:], after)
            else:
                yield after, result

    def _one(self, node: ast.stmt, state: State) -> Iterator[tuple[State, str | None]]:
        if isinstance(node, ast.Pass) or _is_text(node):
            yield state, None
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield state.take(node), None
        elif isinstance(node, ast.Return):
            yield state, _origin(node.value, state)
        elif isinstance(node, ast.Raise):
            yield state, FAILS
        elif isinstance(node, ast.FunctionDef):
            yield state.bind(node.name, _wrapped(node, state)), None
        elif isinstance(node, ast.Assign) and all(isinstance(target, ast.Name) for target in node.targets):
            for target in node.targets:
                assert isinstance(target, ast.Name)
                state = state.bind(target.id, _origin(node.value, state))
            yield state, None
        elif isinstance(node, ast.If):
            answer = self._answer(node.test, state)
            chosen = dataclasses.replace(state, unsure=state.unsure or answer is None)
            if answer is not False:
                yield from self.run(node.body, chosen)
            if answer is not True:
                yield from self.run(node.orelse, chosen)
        elif isinstance(node, ast.Try) and not node.finalbody:
            yield from self._try(node, state)
        else:
            yield state, UNCLEAR

    def _try(self, node: ast.Try, state: State) -> Iterator[tuple[State, str | None]]:
        for after, result in self.run([*node.body, *node.orelse], state):
            if result == FAILS:  # whether a handler catches it is not followed
                result = UNCLEAR
            yield after, result
        attempted = state
        for statement in _own_nodes(node.body):
            if isinstance(statement, (ast.Import, ast.ImportFrom)):
                attempted = dataclasses.replace(state, imported=attempted.take(statement).imported)
        for handler in node.handlers:
            yield from self.run(handler.body, attempted)

    def _answer(self, test: ast.expr, state: State) -> bool | None:
        """A condition's value on this GPU; None: not known."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self._answer(test.operand, state)
            return None if inner is None else not inner
        if isinstance(test, ast.BoolOp):
            answers = [self._answer(value, state) for value in test.values]
            decisive = isinstance(test.op, ast.Or)
            if decisive in answers:
                return decisive
            return None if None in answers else not decisive
        if (
            not isinstance(test, ast.Call)
            or not isinstance(test.func, ast.Name)
            or test.args
            or test.keywords
        ):
            return None
        module, _, name = state.names.get(test.func.id, "").rpartition(".")
        return self.gpu.get(name) if module in UTILITIES else None


def _origin(node: ast.expr | None, state: State) -> str:
    """Where a returned or assigned thing comes from."""
    if node is None or (isinstance(node, ast.Constant) and node.value is None):
        return NOTHING
    if isinstance(node, ast.Name):
        return state.names.get(node.id, UNCLEAR)
    return UNCLEAR


def _wrapped(node: ast.FunctionDef, state: State) -> str:
    """A function made inside the resolver, by the imported names that it uses."""
    used = {state.names[n.id] for n in ast.walk(node) if isinstance(n, ast.Name) and n.id in state.names}
    return f"wrapper of {', '.join(sorted(used))}" if used else UNCLEAR


@dataclasses.dataclass(frozen=True)
class Backend:
    """The parsed source with its two resolvers."""

    text: str
    tree: ast.Module
    varlen: ast.FunctionDef | None
    trtllm: ast.FunctionDef | None
    names: Mapping[str, str]
    """Imports of the module's top level."""
    doubt: str | None
    """Why the functions found may not be those that run."""

    def outcomes(self, function: ast.FunctionDef | None, gpu: Mapping[str, bool]) -> set[Outcome]:
        """What a call returns on such a GPU; a function that is not there returns nothing."""
        if function is None:
            return {Outcome((), NOTHING)}
        ends = list(islice(Walk(gpu).run(function.body, State(self.names)), MOST_WAYS + 1))
        if len(ends) > MOST_WAYS:
            return {Outcome((), UNCLEAR, unsure=True)}
        return {
            Outcome(state.imported, NOTHING if result is None else result, state.unsure)
            for state, result in ends
        }


def read(text: str) -> Backend:
    """Parse the source. Raises SyntaxError."""
    tree = ast.parse(text)
    state = State({})
    functions: dict[str, ast.FunctionDef] = {}
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            state = state.take(node)
        elif isinstance(node, ast.FunctionDef) and node.name in (VARLEN, TRTLLM):
            functions[node.name] = node
    found = [functions.get(name) for name in (VARLEN, TRTLLM)]
    doubt = (
        next((d for name in (VARLEN, TRTLLM) if (d := _doubt(tree, name, functions.get(name)))), None)
        or _doubt_of_names(tree, [f for f in found if f is not None], state.names)
        or _doubt_of_kernel(tree, functions.get(TRTLLM))
    )
    return Backend(text, tree, functions.get(VARLEN), functions.get(TRTLLM), state.names, doubt)


def _doubt(tree: ast.Module, name: str, function: ast.FunctionDef | None) -> str | None:
    """Whether something else than the function found may stand behind its name."""
    nodes = list(ast.walk(tree))
    bound = sum(
        (isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and n.name == name)
        + (isinstance(n, ast.Name) and n.id == name and not isinstance(n.ctx, ast.Load))
        + (isinstance(n, ast.alias) and (n.asname or n.name) == name)
        for n in nodes
    )
    if function is None:
        mentioned = bound or any(isinstance(n, ast.Name) and n.id == name for n in nodes)
        trtllm = name == TRTLLM and any(isinstance(n, ast.alias) and n.name == TRTLLM_KERNEL for n in nodes)
        if name == VARLEN or mentioned or trtllm:
            return f"{name} is no function of the module"
        return None
    if bound != 1:
        return f"{name} is bound {bound} times"
    arguments = function.args
    if arguments.args or arguments.kwonlyargs or arguments.posonlyargs or arguments.vararg or arguments.kwarg:
        return f"{name} takes arguments"
    if not any(isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == name for n in nodes):
        return f"{name} is never called"
    return None


def _doubt_of_names(
    tree: ast.Module, functions: Sequence[ast.FunctionDef], names: Mapping[str, str]
) -> str | None:
    """Whether what the resolvers ask, or are wrapped in, may be something else than the module's import."""
    for function in functions:
        for decorator in function.decorator_list:
            called = ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)
            first, dot, rest = called.partition(".")
            if names.get(first, first) + dot + rest not in CACHES:
                return f"{function.name} has the decorator {ast.unparse(decorator)}"
    used = {n.id for f in functions for n in ast.walk(f) if isinstance(n, ast.Name)}
    trusted = {n for n in used & set(names) if names[n].rpartition(".")[0] in (*UTILITIES, "functools")}
    bound = list(_bound_by_module(tree))
    for name in sorted(trusted):
        if bound.count(name) + bound.count("*") != 1:
            return f"{name} may be another thing than {names[name]}"
    told = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    by_text = sorted(told & (trusted | {VARLEN, TRTLLM}))
    return f"{by_text[0]} may be bound by its name in a text" if by_text else None


def _bound_by_module(tree: ast.Module) -> Iterator[str]:
    """Names bound in the module's own scope, once for each place; ``*`` for an import of everything."""
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
            yield from (name for n in ast.walk(node) if isinstance(n, ast.Global) for name in n.names)
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            yield node.name
        waiting += ast.iter_child_nodes(node)


def _doubt_of_kernel(tree: ast.Module, function: ast.FunctionDef | None) -> str | None:
    """Whether TRT-LLM's kernel is reached by another way than its resolver."""
    own = set(ast.walk(function)) if function else set()
    for node in ast.walk(tree):
        named = (
            (node.name if isinstance(node, ast.alias) else None)
            or (node.attr if isinstance(node, ast.Attribute) else None)
            or (node.value if isinstance(node, ast.Constant) else None)
        )
        if named == TRTLLM_KERNEL and node not in own:
            return f"{TRTLLM_KERNEL} is used outside {TRTLLM}"
    return None


def classify(backend: Backend) -> tuple[Shape, str]:
    """The source's shape, and why."""
    if backend.doubt:
        return Shape.UNKNOWN, backend.doubt
    outcomes = backend.outcomes(backend.trtllm, SM121)
    if any(o.result.rpartition(".")[2] == TRTLLM_KERNEL and not o.unsure for o in outcomes):
        return Shape.WIDENED, f"on SM121 {TRTLLM} gives TRT-LLM's kernel"
    sparse = {outcome.result for outcome in outcomes}
    if sparse != {NOTHING}:
        return Shape.UNKNOWN, f"on SM121 {TRTLLM} gives {_listed(sparse)}, not None"
    return _classify_varlen(backend)


def _classify_varlen(backend: Backend) -> tuple[Shape, str]:
    outcomes = backend.outcomes(backend.varlen, SM121)
    results = {outcome.result for outcome in outcomes}
    if results == {f"{FALLBACK_MODULE}.{FALLBACK_NAME}"}:
        if any(map(_is_flash, (module for o in outcomes for module in o.imported))):
            return Shape.UNKNOWN, "flash_attn is imported before the fallback is returned"
        return Shape.PATCHED, "on SM121 the fallback is returned"
    if all(r.startswith("sglang.") and r.rpartition(".")[2] == NATIVE_NAME for r in results):
        return Shape.NATIVE, f"on SM121 {NATIVE_NAME} is returned"
    questions = (_questions(backend.varlen) | _questions(backend.trtllm)) - {GATE, ROCM}
    if questions:
        return Shape.UNKNOWN, f"SM121 gets {_listed(results)} in spite of {_listed(questions)}"
    first_imports = {next(iter(o.imported), "") for o in _without_utilities(outcomes)}
    if all(map(_is_flash, first_imports)) and all(r == FAILS or "flash_attn." in r for r in results):
        return Shape.LEGACY, "on SM121 flash_attn is tried first"
    return Shape.UNKNOWN, f"on SM121 {VARLEN} gives {_listed(results)}"


def _questions(function: ast.FunctionDef | None) -> set[str]:
    """What the function's conditions ask, as text or, for a question about the GPU, as its name."""
    asked = set()
    for node in _own_nodes(function.body, inside=_may_choose) if function else ():
        if isinstance(node, (ast.If, ast.IfExp, ast.While)):
            for part in ast.walk(node.test):
                if isinstance(part, ast.Call):
                    asked.add(part.func.id if isinstance(part.func, ast.Name) else ast.unparse(part))
                elif isinstance(part, (ast.Compare, ast.Attribute)):
                    asked.add(ast.unparse(part))
    return asked


def _own_nodes(
    body: Sequence[ast.AST], inside: Callable[[ast.AST, Sequence[ast.AST]], bool] = lambda *_: False
) -> Iterator[ast.AST]:
    """What runs when the statements do: a function made there does not, but where ``inside`` is told to look.

    What only ROCm runs is left out too. (Where is_hip is another's, the walk goes that way and judges it.)
    """
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.If) and ast.unparse(node.test) == f"{ROCM}()":
            waiting += [node.test, *node.orelse]
        elif not isinstance(node, FUNCTIONS) or inside(node, body):
            waiting += ast.iter_child_nodes(node)


def _may_choose(function: ast.AST, body: Sequence[ast.AST]) -> bool:
    """Whether a function made in the resolver may reach another kernel than flash_attn's.

    One that names nothing else can't, whatever it asks: it looks at what flash_attn gave it.
    """
    nodes = list(ast.walk(function))
    if any(isinstance(n, (ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal)) for n in nodes):
        return True
    flash = {
        alias.asname or alias.name
        for n in _own_nodes(body)
        if isinstance(n, ast.ImportFrom) and _is_flash(n.module or "")
        for alias in n.names
    }
    own = {n.arg for n in nodes if isinstance(n, ast.arg)}
    own |= {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    used = {n.id for n in nodes if isinstance(n, ast.Name)}
    return not used <= own | flash | TUPLE_WORDS


def _is_flash(module: str) -> bool:
    return module.split(".")[0] == "flash_attn"


def _listed(results: set[str]) -> str:
    return " or ".join(sorted(results)) or "nothing"


def patch(backend: Backend) -> str:
    """The legacy source with the fallback in it; see `prove`."""
    assert backend.varlen is not None
    first = next(n for n in backend.varlen.body if not _is_text(n))
    lines = LINE.findall(backend.text)
    newline = "\r\n" if lines[0].endswith("\r\n") else "\n"
    margin = lines[first.lineno - 1][: first.col_offset]  # as it stands: tabs or spaces
    new = [(margin + line if line else "") + newline for line in INSERTED]
    return "".join([*lines[: first.lineno - 1], *new, *lines[first.lineno - 1 :]])


def prove(before: Backend, text: str, name: str) -> None:
    """Raise Unproven unless SM121 gets the fallback, SM100 what it got, and all else is unchanged."""
    try:
        compile(text, name, "exec", dont_inherit=True)
        after = read(text)
    except (SyntaxError, ValueError) as error:
        raise Unproven(f"it does not compile: {error}") from error
    shape, why = classify(after)
    if shape is not Shape.PATCHED:
        raise Unproven(f"it is {shape.value}: {why}")
    if _without_utilities(after.outcomes(after.varlen, SM100)) != _without_utilities(
        before.outcomes(before.varlen, SM100)
    ):
        raise Unproven("SM100 gets something else than before")
    assert after.varlen is not None
    start = next(i for i, node in enumerate(after.varlen.body) if not _is_text(node))
    del after.varlen.body[start : start + len(ast.parse("\n".join(INSERTED)).body)]
    if ast.dump(after.tree) != ast.dump(before.tree):
        raise Unproven("more than the fallback changed")


def _without_utilities(outcomes: set[Outcome]) -> set[Outcome]:
    """Imports of questions alone choose nothing."""
    return {
        dataclasses.replace(o, imported=tuple(m for m in o.imported if m not in UTILITIES)) for o in outcomes
    }


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def write(path: Path, text: str) -> None:
    """Replace the file at once, with its permissions."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".patch-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
        os.chmod(name, path.stat().st_mode & 0o7777)
        os.replace(name, path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def report_unknown(path: Path, backend: Backend, why: str) -> None:
    """What someone needs in order to teach this program the new shape; why, and which file, last: the end of
    a build's output is what is shown first."""
    for function in (backend.trtllm, backend.varlen):
        if function is not None:
            print(f"{ast.get_source_segment(backend.text, function)}\n", file=sys.stderr)
    print(f"{path}: unknown shape, not patched: {why}", file=sys.stderr)
    print(f"sha256 {hashlib.sha256(backend.text.encode()).hexdigest()}", file=sys.stderr)
    print(INSTEAD, file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: see the module's text."""
    parser = argparse.ArgumentParser(description="Gives SGLang's QSA backend the SM121 fallback kernel.")
    parser.add_argument("file", type=Path, metavar="FILE", help="qwen_sparse_attn_backend.py")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a patch is needed")
    given = parser.parse_args(arguments)
    path: Path = given.file
    try:
        backend = read(path.read_bytes().decode())
    except (OSError, SyntaxError, ValueError) as error:
        print(f"{path}: {error}", file=sys.stderr)
        return 5
    shape, why = classify(backend)
    if shape is Shape.UNKNOWN:
        report_unknown(path, backend, why)
        return 4
    if shape is Shape.WIDENED:
        print(
            f"{path}: widened, refused: {why}. It silently emits token 0 (`!`) there at long context.\n"
            f"{INSTEAD}",
            file=sys.stderr,
        )
        return 3
    if shape is not Shape.LEGACY:
        told = "not needed" if shape is Shape.NATIVE else "nothing to do"
        print(f"{path}: {shape.value}, {told}: {why}")
        return 0
    if given.check:
        print(f"{path}: legacy, a patch is needed: {why}")
        return 1
    try:
        text = patch(backend)
        prove(backend, text, str(path))
        write(path, text)
    except (Unproven, OSError) as error:
        print(f"{path}: not patched: {error}", file=sys.stderr)
        return 5
    print(f"{path}: patched: SM121 gets {FALLBACK_NAME}, SM100 the same as before")
    return 0


if __name__ == "__main__":
    sys.exit(main())
