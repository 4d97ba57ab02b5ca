"""Real Pi asks the lab's real vLLM; clients on the controller are kept in step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.clients.conftest import NEW, ROOT
from tests.clients.conftest import programs as programs
from tests.scenarios.conftest import VLLM, Ran, User

pytestmark = [pytest.mark.lab, pytest.mark.vllm]

LISTED = ("--set", "clients.connect=[pi]")


@dataclass(frozen=True)
class PiUser(User):
    """With Pi on PATH, and a folder of its own for Pi."""

    path: str = ""

    @property
    def environment(self) -> dict[str, str]:
        own = {"PATH": self.path, "PI_CODING_AGENT_DIR": str(self.home / "agent"), "PI_OFFLINE": "1"}
        return {**super().environment, **own}

    def pi(self, question: str, **variables: str) -> Ran:
        """In the lab, where the head's name is known; no key is in the environment."""
        argv = ["lab", "run", "--", "pi", "-p", "--model", "lab/tiny-chat", question]
        done = subprocess.run(
            [sys.executable, "-m", "sparkop", *argv],
            cwd=ROOT,
            env=self.environment | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        return Ran(done.returncode, done.stdout, done.stderr)


def _tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_pi_answers_from_the_lab_and_is_undone(user: User, programs: dict[str, str]) -> None:
    """What the issue must show. The key comes from the head, over SSH, and is in no file of Pi's."""
    path = os.pathsep.join((str(Path(sys.executable).parent), programs[NEW], os.environ["PATH"]))
    person = PiUser(user.lab, user.home, path=path)
    agent = user.home / "agent"
    agent.mkdir()
    (agent / "models.json").write_text('{\n  // mine\n  "providers": {}\n}\n')
    (agent / "settings.json").write_text('{"theme": "dark"}\n')
    before = _tree(agent)
    person.sparkop("apply", VLLM, check=0, timeout=400)

    person.sparkop("connect", "pi", VLLM, check=0)
    answer = person.pi("hello")
    assert answer.code == 0, answer.err
    assert answer.out.strip()
    refused = person.pi("hello", SPARKOP_API_KEY="another")
    assert refused.code == 1
    assert "401" in refused.out + refused.err

    person.sparkop("diff", VLLM, *LISTED, check=0)
    connected = (agent / "models.json").read_text()
    (agent / "models.json").write_text(connected.replace(":8000/v1", ":9999/v1"))
    drift = person.sparkop("diff", VLLM, *LISTED, "-o", "json", check=2).json
    assert [(o["node"], o["resource"]) for o in drift["operations"]] == [("controller", "clients/pi")]
    status = person.sparkop("status", VLLM, *LISTED, "-o", "json").json
    assert status["nodes"][-1]["node"] == "controller"
    assert status["nodes"][-1]["state"] == "differs"
    person.sparkop("apply", VLLM, *LISTED, check=0)
    assert json.loads((agent / "models.json").read_text().replace("// mine", ""))["providers"]["lab"][
        "baseUrl"
    ].endswith(":8000/v1")

    person.sparkop("connect", "pi", VLLM, "--undo", check=0)
    left = _tree(agent)
    assert {name: left[name] for name in before} == before
    assert not [name for name in left if name.startswith(("sparkop", "extensions"))]
