"""The patcher of the SGLang image: what it patches, what it refuses, and what runs afterwards."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import types
import zipfile
from pathlib import Path
from typing import Any

import pytest

from sparkop.spec.models import BuildSpec, ImageSpec

PROGRAM = Path(__file__).parents[2] / "images/sglang-sm121/patch_backend.py"
SOURCES = Path(__file__).parents[1] / "data/sglang"
LEGACY = (SOURCES / "legacy.py").read_text()
ANCHOR = "    try:\n        from flash_attn import flash_attn_varlen_func\n"
MEMBER = "sglang/srt/layers/attention/qwen_sparse_attn_backend.py"
"""The backend's place in SGLang's wheels."""


def _load_patcher() -> Any:
    spec = importlib.util.spec_from_file_location("patch_backend", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


patcher = _load_patcher()


def run(file: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", str(PROGRAM), str(file), *options], capture_output=True, text=True, timeout=60
    )


@pytest.fixture
def backend(tmp_path: Path) -> Path:
    """A legacy backend, to be changed."""
    file = tmp_path / "qwen_sparse_attn_backend.py"
    file.write_text(LEGACY)
    return file


def shape(text: str) -> str:
    return str(patcher.classify(patcher.read(text))[0].value)


@pytest.mark.parametrize("name", ["legacy", "native", "widened", "unknown"])
def test_each_shape_is_recognised(name: str) -> None:
    assert shape((SOURCES / f"{name}.py").read_text()) == name


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("not is_sm100_supported()", "not is_blackwell()", "unknown"),
        ("import is_sm100_supported", "import is_sm120_supported as is_sm100_supported", "widened"),
        ("sglang.srt.utils import", "my.own import", "unknown"),
        ("def _resolve_trtllm_sparse_decode():", "def _resolve_trtllm_sparse_decode(layer):", "unknown"),
        ("PAGE = 64", "PAGE = 64\nfrom x import y as _resolve_flash_attn_varlen_func", "unknown"),
        ("PAGE = 64", "PAGE = 64\nglobals_ = _resolve_flash_attn_varlen_func = None", "unknown"),
        ("def _resolve_flash_attn_varlen_func():", "def _resolve_varlen():", "unknown"),
        ("_resolve_flash_attn_varlen_func()(", "kernel(", "unknown"),
        (
            "@lru_cache(maxsize=1)\ndef _resolve_flash",
            "@swap\n@lru_cache(maxsize=1)\ndef _resolve_flash",
            "unknown",
        ),
        (ANCHOR, "    with quiet():\n        from flash_attn import flash_attn_varlen_func\n", "unknown"),
        (ANCHOR, "    from torch import kernel\n    return kernel\n" + ANCHOR, "unknown"),
        ('raise ImportError("install flash_attn") from missing', "return None", "unknown"),
    ],
)
def test_a_changed_legacy_source_is_not_taken_for_legacy(old: str, new: str, expected: str) -> None:
    """A condition, name or decorator that is not understood must stop the patch: it might lie anywhere."""
    assert old in LEGACY
    text = LEGACY.replace(old, new, 1)
    if "with quiet" in new:  # a statement that is not followed, without the try's handler
        text = text.replace("    except ImportError:\n        pass\n    try:", "    try:", 1)
    assert shape(text) == expected


QUESTION_INSIDE = "    from sglang.srt.utils import is_sm100_supported\n\n"
AT_THE_TOP = LEGACY.replace(QUESTION_INSIDE, "", 1).replace(
    "from functools import lru_cache\n",
    "from functools import lru_cache\n\nfrom sglang.srt.utils import is_sm100_supported\n",
)
"""As newer files have it: the question is imported once, by the module."""


@pytest.mark.parametrize(
    "more",
    [
        "def is_sm100_supported():\n    return True",
        "is_sm100_supported = is_blackwell",
        "(is_sm100_supported := True)",
        "if PAGE:\n    from my.own import is_sm100_supported",
        "from my.own import *",
        "for is_sm100_supported in (bool,):\n    pass",
        "def widen():\n    global is_sm100_supported\n    is_sm100_supported = bool",
        'globals()["is_sm100_supported"] = bool',
        'globals()["_resolve_trtllm_sparse_decode"] = bool',
        "def lru_cache(maxsize):\n    return swap",
        "from flashinfer.decode import trtllm_batch_decode_with_kv_cache as kernel",
        "import flashinfer\nkernel = flashinfer.decode.trtllm_batch_decode_with_kv_cache",
    ],
)
def test_a_name_that_may_be_another_thing_is_not_trusted(more: str) -> None:
    """A question answered by something else opens TRT-LLM's kernel to SM121, and token 0 comes out."""
    assert shape(AT_THE_TOP) == "legacy"
    assert shape(AT_THE_TOP.replace("PAGE = 64", f"PAGE = 64\n{more}", 1)) == "unknown"


def test_a_decorator_that_is_only_called_like_a_cache_is_not_trusted() -> None:
    assert shape(LEGACY.replace("from functools import", "from my.own import")) == "unknown"
    assert shape(LEGACY.replace("from functools import", "from functools import cache as")) == "legacy"


def test_a_function_of_many_conditions_ends_soon() -> None:
    """Each condition that is not understood doubles the ways: 40 of them would be walked for ever."""
    many = "".join(f"    if flag_{n}:\n        pass\n" for n in range(40))
    assert shape(LEGACY.replace(ANCHOR, many + ANCHOR)) == "unknown"


@pytest.mark.parametrize(
    ("old", "new"),
    [("PAGE = 64", 'PAGE = 64\x0c\nNAME = "a\x0bb\u2028c\x85d"'), ("    ", "\t")],
    ids=["separators that are no line ends for Python", "tabs"],
)
def test_lines_and_margins_are_pythons_own(backend: Path, old: str, new: str) -> None:
    """Lines counted otherwise put the patch beside its place, or break the file."""
    backend.write_text(LEGACY.replace(old, new), newline="")
    assert run(backend).returncode == 0
    assert "patched, nothing to do" in run(backend).stdout


def test_no_sparse_decode_at_all_is_legacy_too() -> None:
    """The oldest backends had one resolver."""
    start, end = LEGACY.index("@lru_cache"), LEGACY.rindex("@lru_cache")
    text = LEGACY[:start] + LEGACY[end:]
    lines = text.replace("sparse = _resolve_trtllm_sparse_decode()", "sparse = None")
    assert shape(lines) == "legacy"
    assert shape(text) == "unknown"  # still called, but defined elsewhere


def test_legacy_is_patched_once(backend: Path) -> None:
    backend.chmod(0o640)
    first = run(backend)
    assert (first.returncode, first.stderr) == (0, "")
    assert "patched: SM121 gets qsa_varlen_attention" in first.stdout
    text = backend.read_text()
    assert backend.stat().st_mode & 0o777 == 0o640
    second = run(backend)
    assert second.returncode == 0
    assert "patched, nothing to do" in second.stdout
    assert backend.read_text() == text
    assert run(backend, "--check").returncode == 0
    assert [p.name for p in backend.parent.iterdir()] == [backend.name]


def test_only_the_inserted_lines_are_new(backend: Path) -> None:
    run(backend)
    lines = backend.read_text().splitlines()
    start = lines.index('    """FA2 where it is installed, else FA4."""') + 1
    assert lines[start : start + 6] == [
        "    from sglang.srt.utils import is_sm100_supported",
        "",
        "    if not is_sm100_supported():",
        "        from sglang.srt.layers.attention.qsa_fa_fallback import qsa_varlen_attention",
        "",
        "        return qsa_varlen_attention",
    ]
    assert lines[:start] + lines[start + 6 :] == LEGACY.splitlines()


def test_check_writes_nothing(backend: Path) -> None:
    result = run(backend, "--check")
    assert result.returncode == 1
    assert "a patch is needed" in result.stdout
    assert backend.read_text() == LEGACY


def test_windows_line_ends_stay(backend: Path) -> None:
    backend.write_bytes(LEGACY.replace("\n", "\r\n").encode())
    assert run(backend).returncode == 0
    data = backend.read_bytes()
    assert data.count(b"\n") == data.count(b"\r\n") == LEGACY.count("\n") + 6


def test_native_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "backend.py"
    text = (SOURCES / "native.py").read_text()
    file.write_text(text)
    result = run(file)
    assert result.returncode == 0
    assert "native, not needed" in result.stdout
    assert file.read_text() == text


def test_widened_is_refused_with_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "backend.py"
    text = (SOURCES / "widened.py").read_text()
    file.write_text(text)
    result = run(file)
    assert result.returncode == 3
    assert "token 0" in result.stderr
    assert file.read_text() == text


def test_a_native_kernel_does_not_excuse_a_widened_gate() -> None:
    """Both resolvers matter: the sparse decode is asked first."""
    text = (SOURCES / "native.py").read_text().replace("is_sm120", "is_sm120_supported")
    assert shape(text) == "widened"


def test_unknown_shows_what_to_look_at(tmp_path: Path) -> None:
    file = tmp_path / "backend.py"
    text = (SOURCES / "unknown.py").read_text()
    file.write_text(text)
    result = run(file)
    assert result.returncode == 4
    assert hashlib.sha256(text.encode()).hexdigest() in result.stderr
    assert "if get_device_sm() < 100:" in result.stderr
    assert "def _resolve_flash_attn_varlen_func():" in result.stderr
    end = result.stderr.splitlines()[-3:]  # the end is what apply shows
    assert "unknown shape, not patched: on SM121 _resolve_trtllm_sparse_decode gives" in end[0]
    assert end[1] == f"sha256 {hashlib.sha256(text.encode()).hexdigest()}"
    assert file.read_text() == text


@pytest.mark.parametrize("name", ["unknown", "widened"])
def test_a_refusal_names_the_specs_own_fields(name: str, tmp_path: Path) -> None:
    file = tmp_path / "backend.py"
    file.write_text((SOURCES / f"{name}.py").read_text())
    hint = run(file).stderr.splitlines()[-1]
    fields = {f"image.{f}" for f in ImageSpec.model_fields}
    fields |= {f"image.build.{f}" for f in BuildSpec.model_fields}
    named = set(re.findall(r"image(?:\.\w+)+", hint))
    assert named == {"image.build.base", "image.reference"} <= fields
    assert not re.search(r"\b[A-Z]{2,}(?:_[A-Z]+)*\b", hint), "a recipe's variables are not the spec's words"


@pytest.mark.parametrize("content", [b"def broken(:\n", b"\xff\xfe", b"x = '\0'\n"])
def test_what_is_no_python_is_said(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "backend.py"
    file.write_bytes(content)
    result = run(file)
    assert result.returncode == 5
    assert "Traceback" not in result.stderr


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    result = run(tmp_path / "none.py")
    assert result.returncode == 5
    assert "No such file" in result.stderr


def test_an_empty_file_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "backend.py").touch()
    assert run(tmp_path / "backend.py").returncode == 4


PATCHED = patcher.patch(patcher.read(LEGACY))
QUESTION = "    from sglang.srt.utils import is_sm100_supported\n"
FALLBACK = f"""\
    if not is_sm100_supported():
        from {patcher.FALLBACK_MODULE} import {patcher.FALLBACK_NAME}
        return {patcher.FALLBACK_NAME}
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (LEGACY, "legacy"),
        (LEGACY.replace(ANCHOR, f"    import flash_attn\n{QUESTION}{FALLBACK}{ANCHOR}"), "flash_attn is"),
        (PATCHED.replace("PAGE = 64", "PAGE = 65"), "more than the fallback"),
        ("if is_sm100".join(PATCHED.rsplit("if not is_sm100", 1)), "legacy"),
        (PATCHED.replace("PAGE = 64", "return 1"), "compile"),
    ],
)
def test_the_proof_refuses(text: str, words: str) -> None:
    """Each is a patch that went wrong: none, too late, too much, the wrong way round, broken."""
    with pytest.raises(patcher.Unproven, match=words):
        patcher.prove(patcher.read(LEGACY), text, "backend.py")


def test_the_proof_sees_a_changed_path_of_sm100() -> None:
    text = PATCHED.replace("from flash_attn import", "from flash_attn.old import")
    with pytest.raises(patcher.Unproven, match="SM100"):
        patcher.prove(patcher.read(LEGACY), text, "backend.py")


def test_text_put_at_the_usual_anchor_of_a_native_file_is_seen_as_unneeded() -> None:
    """The pitfall: the anchor is there, the inserted lines are never reached on SM121."""
    native = (SOURCES / "native.py").read_text()
    assert native.count(ANCHOR) == 1
    assert shape(native.replace(ANCHOR, FALLBACK + ANCHOR)) == "native"


IN_WRAPPER = "            results = cute(*args, **kwargs)\n"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("if len(results) > 1 and type(results) is list:\n    return results[0]", "legacy"),
        ("return (lambda r: r[0] if isinstance(r, tuple) else r)(results)", "legacy"),
        ("if is_gb10():\n    return results", "unknown"),
        ("if PAGE > 64:\n    return mine(*args, **kwargs)", "unknown"),
        ("from my.own import kernel\nif len(args) > 1:\n    return kernel(*args)", "unknown"),
        ("def inner():\n    return mine(*args) if len(args) > 1 else results\nreturn inner()", "unknown"),
    ],
)
def test_what_a_wrapper_asks_matters_only_where_it_can_reach_another_kernel(code: str, expected: str) -> None:
    """The result's type is no question about the GPU; a kernel chosen at the call is as good as one in the
    resolver."""
    margin = " " * 12
    lines = "".join(f"{margin}{line}\n" for line in code.splitlines())
    assert shape(LEGACY.replace(IN_WRAPPER, IN_WRAPPER + lines, 1)) == expected


def test_an_import_of_a_function_that_is_only_made_is_none() -> None:
    """flash_attn is not tried first where only a wrapper would import it, later."""
    lazy = "    try:\n        def later():\n            from flash_attn import flash_attn_varlen_func\n\n"
    assert shape(
        LEGACY.replace(ANCHOR, lazy + "        raise ImportError\n" + ANCHOR.partition("\n")[2])
    ) == ("unknown")


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> dict[str, types.ModuleType]:
    """Stand-ins for what the resolvers import; `gpu` in sglang.srt.utils answers the question."""
    found: dict[str, types.ModuleType] = {}
    for name, content in {
        "sglang.srt.utils": {},
        patcher.FALLBACK_MODULE: {"qsa_varlen_attention": "the fallback"},
        "flash_attn": {"flash_attn_varlen_func": "FA2"},
        "flashinfer.decode": {"trtllm_batch_decode_with_kv_cache": "TRT-LLM"},
    }.items():
        for part in _parents(name):
            found.setdefault(part, types.ModuleType(part))
        found[name].__dict__.update(content)
    for name, module in found.items():
        monkeypatch.setitem(sys.modules, name, module)
    return found


def _parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[: n + 1]) for n in range(len(parts))]


@pytest.mark.parametrize(
    ("sm100", "varlen", "sparse"), [(False, "the fallback", None), (True, "FA2", "TRT-LLM")]
)
def test_the_patched_resolvers_run(
    modules: dict[str, types.ModuleType], sm100: bool, varlen: str, sparse: str | None
) -> None:
    """The walk's word is checked by running the functions as the engine does."""
    modules["sglang.srt.utils"].__dict__["is_sm100_supported"] = lambda: sm100
    scope: dict[str, Any] = {}
    exec(PATCHED, scope)
    assert scope["_resolve_flash_attn_varlen_func"]() == varlen
    assert scope["_resolve_trtllm_sparse_decode"]() == sparse


def _released(version: str) -> str:
    """The backend's source of a released SGLang, kept in the cache folder."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sparkop/tests/sglang"
    kept = cache / f"{version}.py"
    if not kept.exists():
        cache.mkdir(parents=True, exist_ok=True)
        options = ["--no-deps", "--only-binary", ":all:", "--python-version", "3.12"]
        platform = ["--platform", "manylinux_2_34_x86_64", "--dest", str(cache)]
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "-q", *options, *platform, f"sglang=={version}"],
            check=True, timeout=120,
        )  # fmt: skip
        (wheel,) = cache.glob(f"sglang-{version}-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            kept.write_bytes(archive.read(MEMBER))
        wheel.unlink()
    return kept.read_text()


RELEASES = ["0.5.20", "0.5.21", "0.5.22", "0.5.23"]


@pytest.mark.parametrize("version", RELEASES)
def test_released_sglang_needs_no_patch(version: str, tmp_path: Path) -> None:
    """The real sources: all have the anchor and their own kernel."""
    file = tmp_path / "backend.py"
    file.write_text(_released(version))
    result = run(file)
    assert result.returncode == 0, result.stderr
    assert "native, not needed" in result.stdout


def _without_sm121(text: str) -> str:
    """The source as it was before SM121 was known: its branch goes, and the question that let SM120 in."""
    tree = ast.parse(text)
    lines = text.splitlines(keepends=True)
    branches = [
        node
        for function in tree.body
        if isinstance(function, ast.FunctionDef) and function.name == patcher.VARLEN
        for node in function.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "is_sm121()"
    ]
    (branch,) = branches
    del lines[branch.lineno - 1 : branch.end_lineno]
    text = "".join(lines)
    assert text.count("(is_sm100_supported() or is_sm120())") == 1
    return text.replace("(is_sm100_supported() or is_sm120())", "is_sm100_supported()")


@pytest.mark.parametrize("version", RELEASES)
def test_released_sglang_without_its_kernel_is_patched_and_proven(version: str, tmp_path: Path) -> None:
    """The real wrappers around the real kernels, as the recipe's base image has them."""
    file = tmp_path / "backend.py"
    file.write_text(_without_sm121(_released(version)))
    result = run(file)
    assert result.returncode == 0, result.stderr
    assert "patched: SM121 gets qsa_varlen_attention" in result.stdout
    assert "patched, nothing to do" in run(file).stdout


def test_the_labs_backend_is_legacy() -> None:
    """What the lab builds recipe B's image from."""
    text = (PROGRAM.parents[1] / "lab-standin/legacy" / MEMBER).read_text()
    assert shape(text) == "legacy"
    assert "isinstance" in text  # as the real one looks at the cute kernel's result


@pytest.mark.parametrize("version", RELEASES)
def test_released_sglang_widened_is_refused(version: str) -> None:
    text = _without_sm121(_released(version))
    gate = "not is_sm100_supported()"
    ask = "from sglang.srt.utils import is_sm120_supported"
    widened = text.replace(
        f"    if {gate}", f"    {ask}\n    if not (is_sm100_supported() or is_sm120_supported())"
    )
    assert shape(widened) == "widened"
