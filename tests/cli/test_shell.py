"""The command line shell: exit codes, words instead of tracebacks, which spec a command is about."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from sparkop.cli import root as cli
from sparkop.cli.options import choose
from sparkop.errors import BlockedError, ExitCode, UsageError
from sparkop.reconcile.remembered import Applied, remember


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("SPARKOP_SPEC", raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.mark.parametrize(
    "argv",
    [["no-such-command"], ["diff", "--no-such-option"], ["logs", "-n", "many"], ["apply", "-o", "xml"]],
)
def test_usage_errors_exit_64_and_never_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(argv) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Usage:" in captured.err


def test_a_slip_in_a_commands_name_is_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["aply"]) == ExitCode.USAGE
    assert "did you mean apply?" in capsys.readouterr().err


def test_every_command_that_help_names_can_be_loaded() -> None:
    group = cli.cli
    context = cli.click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        assert command.help or command.short_help, name


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; from sparkop import cli; assert cli.run(['--help']) == 0;"
        "print(sorted({'docker', 'fabric', 'paramiko', 'huggingface_hub', 'rich', 'pydantic', 'requests'}"
        " & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_a_fault_of_ours_is_one_line_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(**_: object) -> None:
        raise ZeroDivisionError("boom")

    monkeypatch.setattr(cli.cli, "main", broken)
    monkeypatch.delenv("SPARKOP_DEBUG", raising=False)
    assert cli.run([]) == ExitCode.UNEXPECTED
    captured = capsys.readouterr()
    assert "ZeroDivisionError: boom" in captured.err
    assert "Traceback" not in captured.err


@pytest.mark.parametrize(
    ("signal", "code", "told"),
    [
        (KeyboardInterrupt(), ExitCode.INTERRUPTED, "interrupted; run the same command again"),
        (cli.Terminated(), ExitCode.TERMINATED, "terminated; run the same command again"),
    ],
)
def test_a_signal_that_struck_within_a_lock_is_told_as_the_signal(
    signal: BaseException,
    code: ExitCode,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What the lock or a library's clean-up says then is no fault of ours: Ctrl-C of bench once exited 1."""

    def broken(**_: object) -> None:
        try:
            raise signal
        finally:
            try:
                raise RuntimeError("release unlocked lock")
            except RuntimeError as error:
                raise OSError("the clean-up failed") from error

    monkeypatch.setattr(cli.cli, "main", broken)
    assert cli.run([]) == code
    captured = capsys.readouterr()
    assert told in captured.err
    assert "unexpected" not in captured.err


def test_a_signal_that_a_library_makes_a_failure_of_is_told_as_the_signal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """pydantic's core, which is no Python, told Ctrl-C as a SchemaError of its own: exit code 1."""
    for failure in (ValueError("Error building model: KeyboardInterrupt"), BlockedError("it broke")):

        def broken(failure: Exception = failure, **_: object) -> None:
            with suppress(KeyboardInterrupt):
                cli.strike(signal.SIGINT)
            raise failure

        monkeypatch.setattr(cli.cli, "main", broken)
        assert cli.run([]) == ExitCode.INTERRUPTED
        captured = capsys.readouterr()
        assert "interrupted; run the same command again" in captured.err
        assert "unexpected" not in captured.err
    monkeypatch.setattr(cli.cli, "main", lambda **_: None)
    assert cli.run([]) == ExitCode.OK, "the one before is forgotten"


def test_spec_named_wins_over_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARKOP_SPEC", "other.yaml")
    assert choose("mine.yaml", (), ()).path == Path("mine.yaml")


def test_environment_then_folder_then_last_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    remember(Applied("lab", "/specs/lab.yaml", ("/specs/o.yaml",), ("api.port=8001",)))
    last = choose(None, (), ("api.port=8002",))
    assert last.path == Path("/specs/lab.yaml")
    assert last.overlays == (Path("/specs/o.yaml"),)
    assert last.sets == ("api.port=8001", "api.port=8002"), "what is given now comes last, so that it wins"
    assert last.how

    Path("spec.yaml").write_text("")
    assert choose(None, (), ()).path == Path("spec.yaml")

    monkeypatch.setenv("SPARKOP_SPEC", "env.yaml")
    assert choose(None, (), ()).path == Path("env.yaml")


def test_no_spec_anywhere_says_how_to_get_one() -> None:
    with pytest.raises(UsageError) as caught:
        choose(None, (), ())
    assert "sparkop init" in str(caught.value.remedy)


def test_a_word_that_is_no_path_is_refused_with_a_guess() -> None:
    Path("cluster").write_text("")
    with pytest.raises(UsageError) as caught:
        choose("cluster", (), ())
    assert caught.value.remedy == "did you mean ./cluster?"


def test_a_name_too_long_for_a_file_is_a_usage_error() -> None:
    with pytest.raises(UsageError):
        choose("x" * 300, (), ())


@pytest.mark.parametrize("content", ["{", "[]", '{"cluster": "lab"}'])
def test_a_damaged_memory_of_the_last_apply_is_told_as_that(content: str, tmp_path: Path) -> None:
    """Not as "nothing was applied": that would be a lie."""
    folder = tmp_path / "state" / "sparkop"
    folder.mkdir(parents=True)
    (folder / "last.json").write_text(content)
    with pytest.raises(UsageError, match="applied last can't be told") as caught:
        choose(None, (), ())
    assert "it is damaged" in str(caught.value.cause)
    remember(Applied("lab", "/specs/lab.yaml"))
    assert choose(None, (), ()).path == Path("/specs/lab.yaml")
