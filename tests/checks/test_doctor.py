"""doctor as a whole: two readings, what is asked of a node, exit codes, and what users see."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from sparkop.cli import run
from sparkop.errors import ExitCode, HostKeyError, SparkopError, UnreachableError, UsageError
from sparkop.reconcile.doctor import Report, examine_facts, examine_nodes
from sparkop.resources.checks import CHECKS
from sparkop.resources.checks.model import Finding, Look, State
from sparkop.views.checks_page import checks_page
from sparkop.views.console import out, talk
from sparkop.views.doctor import complaint_lines
from tests.checks.cases import BASE, ROOT, SPEC, _set, read, spec_of

FACTS = str(ROOT / "tests/data/facts/two-sparks.json")
Change = dict[str, Any]


class Node:
    """A host whose probe answers with recorded documents, one a reading."""

    def __init__(self, name: str, *changes: Change, error: SparkopError | None = None) -> None:
        self.name = name
        self.changes = list(changes) or [{}]
        self.error = error
        self.requests: list[Mapping[str, Any]] = []

    def probe(self, request: Mapping[str, Any], *, timeout: float = 30.0) -> dict[str, Any]:
        self.requests.append(request)
        if self.error is not None:
            raise self.error
        document: dict[str, Any] = json.loads(BASE.read_text())[self.name]
        document["machine"]["time_s"] = 1000.0
        change = self.changes[min(len(self.requests), len(self.changes)) - 1]
        for where, value in change.items():
            _set(document, where, value)
        sections = request.get("sections")
        if sections is not None:
            keep = {"version", "nonce", "errors", *sections}
            document = {key: value for key, value in document.items() if key in keep}
        return document


def examine(
    *nodes: Node,
    sleep: Callable[[float], None] | None = None,
    only: tuple[str, ...] = (),
    nodes_told: tuple[str, ...] = (),
) -> Report:
    return examine_nodes(
        spec_of(SPEC, ()),
        {node.name: node for node in nodes},  # type: ignore[misc]
        resources=(),
        clock=lambda: 1000.0,
        sleep=sleep or (lambda _seconds: None),
        only=only,
        nodes=nodes_told,
    )


def state_of(report: Report, node: str, check: str) -> State:
    return next(r.state for r in report.results if (r.node, r.check) == (node, check))


@pytest.mark.parametrize("read", ["doctor", "facts"])
def test_an_interrupt_waits_for_no_node(read: str) -> None:
    """Nothing is changed that should end in good order: Ctrl-C waited for a silent node up to a minute."""
    program = f"""
import _thread, threading, time
from sparkop.reconcile.doctor import examine_nodes
from sparkop.reconcile.facts import record_facts
from tests.checks.cases import SPEC, spec_of

class Silent:
    def probe(self, request, *, timeout=0.0):
        both.wait()
        _thread.interrupt_main()
        time.sleep(60)

both = threading.Barrier(2)
spec = spec_of(SPEC, ())
{"examine_nodes" if read == "doctor" else "record_facts"}(
    spec, {{node.name: Silent() for node in spec.nodes}}, resources=()
)
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=45, check=False)
    assert "KeyboardInterrupt" in done.stderr


def test_a_slow_node_holds_doctor_for_seconds() -> None:
    """It takes seconds, says its page: a node frozen in the midst of an answer held it up for a minute."""
    given: list[float] = []

    class Slow(Node):
        def probe(self, request: Mapping[str, Any], *, timeout: float = 30.0) -> dict[str, Any]:
            given.append(timeout)
            return super().probe(request, timeout=timeout)

    examine(Slow("spark-1"), Node("spark-2"))
    assert len(given) == 2
    assert given[0] == 20
    assert 5 <= given[1] <= 20


def test_good_nodes_are_all_ok() -> None:
    """With false alarms nobody would read the report."""
    report = examine(Node("spark-1"), Node("spark-2"))
    assert [line.plain for line in complaint_lines(report)] == []
    assert report.exit_code is ExitCode.OK


def test_a_silent_node_is_unknown_and_the_other_is_checked() -> None:
    """4, although the other node has a failure: that may follow from the silence."""
    error = UnreachableError("No SSH connection to spark-2.", cause="no route to host", remedy="Power it on.")
    report = examine(Node("spark-1", {"machine.arch": "x86_64"}), Node("spark-2", error=error))
    assert report.exit_code is ExitCode.UNREACHABLE
    assert state_of(report, "spark-1", "host.arch") is State.FAIL
    shown = "\n".join(line.plain for line in complaint_lines(report))
    assert (
        "? spark-2 ssh.batch: No SSH connection to spark-2: no route to host\n    do: Power it on." in shown
    )


def test_host_key_and_permission_are_told_apart() -> None:
    """The three ways in which a login fails need three different acts."""
    key = HostKeyError(
        "The host key of spark-1 is not known.", cause="it shows SHA256:x", remedy="ssh-keyscan"
    )
    denied = UnreachableError("spark-2 refuses the login.", cause="permission denied", remedy="ssh-copy-id")
    report = examine(Node("spark-1", error=key), Node("spark-2", error=denied))
    told = [found.text + found.remedy for result in report.results for found in result.findings]
    assert told == [
        "The host key of spark-1 is not known: it shows SHA256:xssh-keyscan",
        "spark-2 refuses the login: permission deniedssh-copy-id",
    ]
    assert report.exit_code is ExitCode.UNREACHABLE


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"fabric.interfaces.enp1s0f0np0.speed_mbps": 100000}, ExitCode.OK),
        ({"machine.arch": "x86_64"}, ExitCode.FAILED),
        ({"memory": ".absent", "errors.memory": "OSError: Input/output error"}, ExitCode.UNREACHABLE),
        ({"docker": ".absent", "errors.docker": "FileNotFoundError: x"}, ExitCode.FAILED),
        ({"health": ".absent"}, ExitCode.OK),
    ],
)
def test_exit_codes(change: Change, code: ExitCode) -> None:
    """Scripts act on them: a warning is 0, a failure 6, what could not be read 4."""
    assert examine(Node("spark-1"), Node("spark-2", change)).exit_code is code


def test_an_address_that_comes_back_is_no_fault() -> None:
    """Right after ``netplan apply`` addresses are away for a second: a false alarm that peers had."""
    gone: Change = {
        "fabric.interfaces.enp1s0f0np0.addresses": [],
        "fabric.interfaces.enP2p1s0f0np0.addresses": [],
    }
    waited: list[float] = []
    report = examine(Node("spark-1"), Node("spark-2", gone, {}), sleep=waited.append)
    assert waited
    assert report.exit_code is ExitCode.OK


def test_a_good_fabric_is_not_waited_for() -> None:
    """The second reading follows at once: doctor takes seconds, not more."""
    waited: list[float] = []
    examine(Node("spark-1"), Node("spark-2"), sleep=waited.append)
    assert waited == []


def test_counters_are_compared_between_the_two_readings() -> None:
    grown = {"fabric.devices.rocep1s0f0.counters.packet_seq_err": 40}
    report = examine(Node("spark-1"), Node("spark-2", {}, grown))
    assert state_of(report, "spark-2", "fabric.counters") is State.WARN


def test_pings_go_from_each_rail_to_its_other_end_small_and_large() -> None:
    """Only a full-size packet from the rail's own address proves the MTU end to end."""
    head = Node("spark-1", {"fabric.interfaces.enP2p1s0f0np0.mtu": 4000})
    examine(head, Node("spark-2"))
    assert [(p["source"], p["address"], p["bytes"]) for p in head.requests[1]["pings"]] == [
        ("192.168.100.10", "192.168.100.11", 84),
        ("192.168.100.10", "192.168.100.11", 9000),
        ("192.168.101.14", "192.168.101.15", 84),
        ("192.168.101.14", "192.168.101.15", 4000),
    ]
    assert head.requests[1]["peers"] == ["192.168.100.11", "192.168.101.15"]


def test_no_file_contents_are_asked_for() -> None:
    """Contents are secrets; doctor prints what it reads."""
    node = Node("spark-1")
    examine(node, Node("spark-2"))
    assert all(not request.get("contents") for request in node.requests)


def test_one_check_reads_only_what_it_needs() -> None:
    """A look at the disk does not pay for nvidia-smi, nor for hashing a library."""
    node = Node("spark-1")
    report = examine(node, Node("spark-2"), only=("disk",), nodes_told=("spark-2",))
    assert {result.check for result in report.results} == {"disk"}
    assert {result.node for result in report.results} == {"spark-2"}
    assert not any(node.requests[0][costly] for costly in ("gpu", "health", "libraries"))


def test_a_group_of_checks() -> None:
    report = examine(Node("spark-1"), Node("spark-2"), only=("rdma", "clock"))
    assert {result.check for result in report.results} == {"rdma.active", "rdma.pair", "clock"}


@pytest.mark.parametrize(
    ("only", "nodes", "meant"),
    [
        (("fabrik",), (), "did you mean fabric? one of: ssh.batch"),
        (("fabric.mtuu",), (), "did you mean fabric.mtu?"),
        (("fab",), (), "did you mean fabric.link?"),
        (("xyzzy",), (), "one of: ssh.batch"),
        ((), ("spark1",), "did you mean spark-1? one of: spark-1, spark-2"),
    ],
)
def test_a_misspelt_choice_is_refused(only: tuple[str, ...], nodes: tuple[str, ...], meant: str) -> None:
    """Else nothing would be checked, and all would look well."""
    with pytest.raises(UsageError) as caught:
        examine(Node("spark-1"), Node("spark-2"), only=only, nodes_told=nodes)
    assert str(caught.value.remedy).startswith(meant)


def test_a_node_that_goes_silent_between_the_readings_is_unreachable() -> None:
    """Half a reading would leave its pings and routes unchecked, and say that all is well."""

    class Leaves(Node):
        def probe(self, request: Mapping[str, Any], *, timeout: float = 30.0) -> dict[str, Any]:
            if self.requests:
                raise ConnectionResetError("reset by peer")
            return super().probe(request, timeout=timeout)

    report = examine(Node("spark-1"), Leaves("spark-2"))
    assert report.exit_code is ExitCode.UNREACHABLE
    assert "reset by peer" in report.unreachable["spark-2"]
    assert {r.check for r in report.results if r.node == "spark-2"} == {"ssh.batch"}


def test_nobody_answers() -> None:
    """Every node is told of, and nothing breaks for want of a first one."""
    gone = UnreachableError("No SSH connection.", cause="timed out")
    report = examine(Node("spark-1", error=gone), Node("spark-2", error=gone))
    assert list(report.unreachable) == ["spark-1", "spark-2"]
    assert report.exit_code is ExitCode.UNREACHABLE


def test_a_check_that_breaks_leaves_the_others_their_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that nobody has foreseen must not cost the whole report."""

    def broken(_look: Look) -> list[Finding]:
        raise KeyError("odd")

    checks = tuple(replace(c, find=broken) if c.id == "clock" else c for c in CHECKS)
    monkeypatch.setattr("sparkop.reconcile.doctor.CHECKS", checks)
    report = examine(Node("spark-1"), Node("spark-2"))
    assert state_of(report, "spark-2", "clock") is State.UNKNOWN
    assert state_of(report, "spark-2", "fabric.mtu") is State.OK
    assert report.exit_code is ExitCode.UNREACHABLE


def test_four_nodes_report_the_one_that_differs() -> None:
    """Comparisons are not made between the first two only."""
    spec = spec_of(SPEC, ())
    documents = read(spec, {})
    base = json.loads(BASE.read_text())
    nodes = [node.model_copy(update={"name": f"spark-{n}"}) for n, node in enumerate([*spec.nodes] * 2, 1)]
    spec = spec.model_copy(update={"nodes": tuple(nodes)})
    for n in (3, 4):
        base[f"spark-{n}"] = deepcopy(base["spark-2"])
        base[f"spark-{n}"]["machine"]["machine_id"] = str(n)
        for interface in base[f"spark-{n}"]["fabric"]["interfaces"]:
            interface["addresses"] = [a.replace(".11/", f".{20 + n}/") for a in interface["addresses"]]
            interface["addresses"] = [a.replace(".15/", f".{30 + n}/") for a in interface["addresses"]]
    _set(base["spark-4"], "fabric.interfaces.enp1s0f0np0.mtu", 1500)
    from sparkop.hosts.document import parse_document

    documents = {name: parse_document(raw) for name, raw in base.items()}
    report = examine_facts(spec, documents, only=("fabric.mtu", "fabric.ipv4"))
    bad = {(r.node, r.check) for r in report.results if r.state is State.FAIL}
    assert bad == {("spark-4", "fabric.mtu")}


class TestCommands:
    """As a user runs them, on recorded facts."""

    @pytest.fixture(autouse=True)
    def _fresh_consoles(self) -> None:
        out.cache_clear()
        talk.cache_clear()

    def test_doctor_on_recorded_facts(self, capsys: pytest.CaptureFixture[str]) -> None:
        """The command of the issue: warnings only, and what was not recorded in one line a node."""
        assert run(["doctor", str(ROOT / SPEC), "--facts", FACTS]) == 0
        shown = capsys.readouterr().out
        assert "! spark-2 fabric.ipv4: subnet: 192.168.100.0/24 on enp1s0f0np0 and enP2p1s0f0np0" in shown
        assert shown.count("not read: ") == 2
        assert "0 failed" in shown

    def test_json(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["doctor", str(ROOT / SPEC), "--facts", FACTS, "-o", "json", "--only", "fabric"]) == 0
        report = json.loads(capsys.readouterr().out)
        found = next(c for c in report["checks"] if c["node"] == "spark-1" and c["check"] == "fabric.ipv4")
        assert found["state"] == "warn"
        assert found["findings"][0]["field"] == "subnet"
        assert found["findings"][0]["remedy"]
        assert report["exitCode"] == 0

    def test_a_failure_is_six(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        facts = json.loads(Path(FACTS).read_text())
        _set(facts["spark-2"], "fabric.interfaces.enp1s0f0np0.mtu", 1500)
        file = tmp_path / "facts.json"
        file.write_text(json.dumps(facts))
        assert run(["doctor", str(ROOT / SPEC), "--facts", str(file)]) == 6
        assert "✗ spark-2 fabric.mtu: enp1s0f0np0.mtu: 1500, should be 9000" in capsys.readouterr().out

    def test_unknown_check_is_a_usage_error(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["doctor", str(ROOT / SPEC), "--facts", FACTS, "--only", "nope"]) == 64
        assert "there is no check nope" in capsys.readouterr().err

    def test_fabric_draws_and_marks(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """A wrong MTU is marked at its port, on its wire, and in the picture."""
        facts = json.loads(Path(FACTS).read_text())
        _set(facts["spark-2"], "fabric.interfaces.enp1s0f0np0.mtu", 1500)
        file, picture = tmp_path / "facts.json", tmp_path / "fabric.svg"
        file.write_text(json.dumps(facts))
        assert run(["fabric", str(ROOT / SPEC), "--facts", str(file), "--picture", str(picture)]) == 6
        shown = capsys.readouterr().out
        assert "✗ spark-2  0     rocep1s0f0    enp1s0f0np0    ACTIVE  192.168.100.11/24  1500" in shown
        assert "mtu 9000 ≠ 1500" in shown
        assert "NCCL_IB_HCA=rocep1s0f0,roceP2p1s0f0" in shown
        texts = [element.text or "" for element in ElementTree.parse(picture).iter()]
        assert any("cage 0 · rocep1s0f0 · enp1s0f0np0" in text for text in texts)
        assert any("spark-2 fabric.mtu: enp1s0f0np0.mtu: 1500" in text for text in texts)

    @pytest.mark.parametrize("command", ["fabric", "budget"])
    @pytest.mark.parametrize("name", ["x.png", "x", "x.svgz"])
    def test_a_picture_under_another_kinds_name_is_refused(
        self, name: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """No viewer opened it: it is SVG under any name. Nothing is read, or written, before that is told."""
        words = [command, str(ROOT / SPEC), "--picture", str(tmp_path / name)]
        assert run(words) == 64
        assert str((tmp_path / name).with_suffix(".svg")) in capsys.readouterr().err
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("name", ["\x1b[31mred", 'a<b>&"', "\ud800", "\x00"])
    def test_picture_takes_any_name_of_an_interface(self, tmp_path: Path, name: str) -> None:
        """Linux refuses only blanks, slashes and colons there; the picture must still open."""
        facts = json.loads(BASE.read_text().replace('"enp1s0f0np0"', json.dumps(name)))
        file, picture = tmp_path / "facts.json", tmp_path / "fabric.svg"
        file.write_text(json.dumps(facts))
        run(["fabric", str(ROOT / SPEC), "--facts", str(file), "--picture", str(picture), "-o", "json"])
        texts = [element.text or "" for element in ElementTree.parse(picture).iter()]
        assert any("cage 0 · rocep1s0f0 · " in text for text in texts)

    @pytest.mark.parametrize("words", [["doctor", "--all"], ["fabric"]])
    def test_terminal_gets_no_control_characters_of_a_node(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
    ) -> None:
        facts = json.loads(BASE.read_text().replace('"enp1s0f0np0"', json.dumps("e\x1b]0;x\x07")))
        file = tmp_path / "facts.json"
        file.write_text(json.dumps(facts))
        run([*words, str(ROOT / SPEC), "--facts", str(file)])
        shown = capsys.readouterr().out
        assert "e�]0;x" in shown
        assert not any(ord(each) < 32 and each != "\n" for each in shown)

    def test_fabric_joins_crossed_ports(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Cage 0 of one with cage 1 of the other: by shared network, whatever the names are."""
        facts = json.loads(BASE.read_text())
        interfaces = "fabric.interfaces"
        _set(facts["spark-2"], f"{interfaces}.enp1s0f0np0.addresses", ["192.168.101.15/24"])
        _set(facts["spark-2"], f"{interfaces}.enP2p1s0f0np0.addresses", ["192.168.100.11/24"])
        file = tmp_path / "facts.json"
        file.write_text(json.dumps(facts))
        run(["fabric", str(ROOT / SPEC), "--facts", str(file), "-o", "json"])
        wires = json.loads(capsys.readouterr().out)["wires"]
        assert [[end["device"] for end in wire["ends"]] for wire in wires] == [
            ["rocep1s0f0", "roceP2p1s0f0"],
            ["roceP2p1s0f0", "rocep1s0f0"],
        ]

    def test_fabric_shows_a_node_without_a_rail(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        facts = json.loads(BASE.read_text())
        _set(facts["spark-2"], "fabric.devices", [])
        file, picture = tmp_path / "facts.json", tmp_path / "x.svg"
        file.write_text(json.dumps(facts))
        assert run(["fabric", str(ROOT / SPEC), "--facts", str(file), "--picture", str(picture)]) == 6
        shown = capsys.readouterr().out
        assert "spark-2: no usable rail" in shown
        assert "no other node is in 192.168.100.0/24" in shown
        ElementTree.parse(picture)


def test_the_page_is_what_the_checks_say() -> None:
    """``python -m sparkop.views.checks_page > docs/reference/checks.md`` when this fails."""
    assert (ROOT / "docs/reference/checks.md").read_text(encoding="utf-8") == checks_page()
