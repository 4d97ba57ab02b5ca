"""The lab's hub, asked by the real huggingface_hub client over loopback."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkop.lab import hub, layout
from sparkop.lab.hub import Failure, Knobs

pytestmark = pytest.mark.lab  # not for root: for its time, a client process a call

REPOSITORY = "sparkop/model"
BIG = os.urandom(3 << 20)
FILES: dict[str, Path | bytes] = {
    "config.json": b'{"model_type": "llama"}',
    "model.safetensors": b"tiny weights",
    "deep/er/big.bin": BIG,
}


class Client:
    """The real client in a process of its own, as it reads its endpoint at import."""

    def __init__(self, port: int, home: Path) -> None:
        self.environment = {
            **os.environ,
            "HF_ENDPOINT": f"http://127.0.0.1:{port}",
            "HF_HOME": str(home),
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
        }

    def call(self, expression: str, token: str | None = None) -> subprocess.CompletedProcess[str]:
        """Evaluate ``expression``, with names of huggingface_hub, and print it as JSON."""
        program = f"import json\nfrom huggingface_hub import *\nprint(json.dumps({expression}, default=str))"
        environment = {**self.environment, **({"HF_TOKEN": token} if token else {})}
        return subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120
        )

    def value(self, expression: str, token: str | None = None) -> object:
        done = self.call(expression, token)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setenv(layout.STATE_VARIABLE, str(tmp_path / "labs"))
    monkeypatch.setenv(layout.LAB_VARIABLE, "hub")
    paths = layout.LabPaths.of()
    command = hub.prepare(paths)
    hub.add_repository(FILES, REPOSITORY)
    port = _two_free_ports()
    server = subprocess.Popen([*command[:-2], "127.0.0.1", str(port)])
    try:
        _wait_for(port)
        yield Client(port, tmp_path / "home")
    finally:
        server.kill()
        server.wait()


def _two_free_ports() -> int:
    for _ in range(100):
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port
    raise AssertionError("no two free ports side by side")


def _wait_for(port: int) -> None:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise AssertionError("the hub does not listen")


def test_snapshot_download_brings_every_file_whole(client: Client) -> None:
    folder = client.value(f"snapshot_download({REPOSITORY!r})")
    for name, content in FILES.items():
        assert Path(str(folder), name).read_bytes() == content
    assert client.value(f"snapshot_download({REPOSITORY!r}, local_files_only=True)") == folder


def test_listing_has_sizes_hashes_and_commit(client: Client) -> None:
    commit = hub.add_repository(FILES, REPOSITORY)
    assert client.value(f"model_info({REPOSITORY!r}).sha") == commit
    files = client.value(
        "[[entry.path, entry.size, entry.lfs and entry.lfs.sha256] for entry in "
        f"list_repo_tree({REPOSITORY!r}, recursive=True) if hasattr(entry, 'size')]"
    )
    assert isinstance(files, list)
    by_name = {name: (size, sha256) for name, size, sha256 in files}
    assert by_name["deep/er/big.bin"][0] == len(BIG)
    assert by_name["config.json"] == (len(FILES["config.json"]), None)  # type: ignore[arg-type]
    assert by_name["model.safetensors"][1] is not None  # large file storage by name, as on the real hub
    metadata = f"get_hf_file_metadata(hf_hub_url({REPOSITORY!r}, 'model.safetensors'))"
    assert client.value(f"[{metadata}.etag, {metadata}.commit_hash]") == [
        by_name["model.safetensors"][1],
        commit,
    ]


def test_older_commits_and_branches_stay(client: Client) -> None:
    old = hub.add_repository(FILES, REPOSITORY)
    new = hub.add_repository({**FILES, "config.json": b"{}"}, REPOSITORY)
    hub.add_repository({"a.txt": b"a"}, REPOSITORY, revision="next")
    assert new != old
    assert client.value(f"open(hf_hub_download({REPOSITORY!r}, 'config.json')).read()") == "{}"
    assert (
        client.value(f"open(hf_hub_download({REPOSITORY!r}, 'config.json', revision={old!r})).read()") != "{}"
    )
    assert client.value(f"list_repo_files({REPOSITORY!r}, revision='next')") == ["a.txt"]


@pytest.mark.parametrize(
    ("knobs", "token", "error"),
    [
        (Knobs(token="hf_good", private=(REPOSITORY,)), None, "RepositoryNotFoundError"),
        (Knobs(token="hf_good", private=(REPOSITORY,)), "hf_bad", "401"),
        (Knobs(token="hf_good", gated=(REPOSITORY,)), None, "GatedRepoError"),
        (Knobs(token="hf_good", gated=(REPOSITORY,)), "hf_good", "GatedRepoError"),
        (Knobs(failures=(Failure(503, count=50),)), None, "503"),
    ],
)
def test_refusals_are_the_ones_the_client_knows(
    client: Client, knobs: Knobs, token: str | None, error: str
) -> None:
    hub.turn(knobs)
    done = client.call(f"model_info({REPOSITORY!r}, timeout=5)", token)
    assert done.returncode != 0
    assert error in done.stderr


def test_the_good_token_opens_a_private_repository_and_is_not_logged(client: Client) -> None:
    hub.turn(Knobs(token="hf_sentinel", private=(REPOSITORY,)))
    assert client.value(f"model_info({REPOSITORY!r}).id", "hf_sentinel") == REPOSITORY
    assert hub.requests()[-1].authorized
    assert "hf_sentinel" not in (layout.LabPaths.of().hub / "requests.jsonl").read_text()


def test_unknown_names_are_told_apart(client: Client) -> None:
    assert "RepositoryNotFoundError" in client.call("model_info('sparkop/none')").stderr
    assert "RevisionNotFoundError" in client.call(f"model_info({REPOSITORY!r}, revision='none')").stderr
    assert "EntryNotFoundError" in client.call(f"hf_hub_download({REPOSITORY!r}, 'none.json')").stderr


def test_throttled_requests_are_counted_down(client: Client) -> None:
    hub.turn(Knobs(failures=(Failure(429, count=2, match="resolve", retry_after=1),)))
    assert (
        client.value(f"open(hf_hub_download({REPOSITORY!r}, 'config.json')).read()")
        == '{"model_type": "llama"}'
    )
    assert [request.status for request in hub.requests()].count(429) == 2


def test_a_cut_download_is_logged_with_what_was_sent_and_goes_on_by_range(client: Client) -> None:
    """The client asks for the rest from whole 10 MiB chunks on, so the file must be larger."""
    content = os.urandom(24 << 20)
    hub.add_repository({"large.bin": content}, REPOSITORY, revision="large")
    hub.turn(Knobs(cut_after=15 << 20, cut_count=1, cut_match="large"))
    path = client.value(f"hf_hub_download({REPOSITORY!r}, 'large.bin', revision='large')")
    assert Path(str(path)).read_bytes() == content
    sent = [
        (request.range, request.bytes) for request in hub.requests() if request.path.startswith("/files/")
    ]
    assert sent[0][1] == 15 << 20
    assert sent[-1][0] is not None
    assert sum(amount for _, amount in sent) < 2 * len(content)
