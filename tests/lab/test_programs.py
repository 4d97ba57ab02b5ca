"""Programs that stand for a Spark's own: nvidia-smi, and runc on a machine with fewer rights."""

from __future__ import annotations

import importlib.util
import json
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sparkop.lab.seed import PROGRAMS


def _load(name: str) -> ModuleType:
    loader = SourceFileLoader(name.replace("-", "_"), str(PROGRAMS / "bin" / name))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            "--query-gpu=name,driver_version,memory.total,memory.used,memory.free --format=csv",
            "name, driver_version, memory.total, memory.used, memory.free\n"
            "NVIDIA GB10, 580.142, [N/A], [N/A], [N/A]",
        ),
        (
            "--query-gpu=name,driver_version,pci.bus_id,utilization.gpu,power.draw --format=csv,noheader",
            "NVIDIA GB10, 580.142, 0000000F:01:00.0, 0 %, 4.12 W",
        ),
        ("--query-gpu=gpu_name,clocks.current.sm --format=csv,noheader,nounits", "NVIDIA GB10, 208"),
        ("--query-compute-apps=pid,process_name,used_memory --format=csv", ""),
    ],
)
def test_nvidia_smi_answers_as_recorded(arguments: str, expected: str) -> None:
    assert _load("nvidia-smi").main(arguments.split()) == expected


def test_nvidia_smi_shows_knobs_and_refuses_unknown_fields(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = _load("nvidia-smi")
    monkeypatch.setattr(program, "KNOBS", tmp_path / "gpu.json")
    (tmp_path / "gpu.json").write_text(json.dumps({"clocks.sm": "507 MHz"}))
    assert program.main(["--query-gpu=clocks.sm", "--format=csv,noheader"]) == "507 MHz"
    with pytest.raises(SystemExit) as stopped:
        program.main(["--query-gpu=clokcs.sm", "--format=csv"])
    assert stopped.value.code == 2
    assert "clokcs.sm" in capsys.readouterr().out


def test_nvidia_smi_table_is_even() -> None:
    lines = _load("nvidia-smi").main([]).splitlines()
    assert {len(line) for line in lines} == {91}
    assert "Not Supported" in "\n".join(lines)


def test_runc_loses_only_what_the_missing_capability_allows() -> None:
    program = _load("runc-lab")
    process: dict[str, Any] = {
        "capabilities": {"bounding": ["CAP_SYS_RESOURCE", "CAP_SYS_ADMIN"], "effective": []},
        "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 1 << 40, "soft": 1 << 39}],
        "oomScoreAdj": -900,
    }
    program.soften(process)
    assert process["capabilities"] == {"bounding": ["CAP_SYS_ADMIN"], "effective": []}
    limit = process["rlimits"][0]
    assert limit["soft"] <= limit["hard"] < 1 << 40
    assert process["oomScoreAdj"] == 0
    kept = {"oomScoreAdj": 500, "capabilities": None}
    program.soften(kept)
    assert kept == {"oomScoreAdj": 500, "capabilities": None}


def test_runc_binds_the_hosts_meminfo_once() -> None:
    program = _load("runc-lab")
    plain: dict[str, list[dict[str, object]]] = {"mounts": []}
    program.show_memory(plain)
    program.show_memory(plain)
    assert [mount["destination"] for mount in plain["mounts"]] == ["/proc/meminfo"]
    own = {"mounts": [{"destination": "/proc/meminfo", "source": "/somewhere"}]}
    program.show_memory(own)
    assert own["mounts"] == [{"destination": "/proc/meminfo", "source": "/somewhere"}]


def test_runc_rewrites_the_bundle_it_is_given(tmp_path: Path) -> None:
    program = _load("runc-lab")
    (tmp_path / "config.json").write_text(json.dumps({"process": {}, "mounts": []}))
    program.rewrite(["--root", "/run/runc", "create", "--bundle", str(tmp_path), "some-id"])
    assert json.loads((tmp_path / "config.json").read_text())["mounts"]
    process = tmp_path / "process.json"
    process.write_text(json.dumps({"args": ["true"]}))
    program.rewrite(["exec", f"--process={process}", "some-id"])
    assert json.loads(process.read_text())["args"] == ["true"]
    program.rewrite(["kill", "some-id"])
