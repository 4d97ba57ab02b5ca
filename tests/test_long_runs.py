"""What the long runs say to who has sparkop alone, as the README's first command installs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

WITHOUT_PYTEST = """
import importlib.util as util
known = util.find_spec
util.find_spec = lambda name, *rest: None if name == "pytest" else known(name, *rest)
import tests.soak.__main__
"""


def test_without_what_tests_need_a_long_run_says_what_installs_it() -> None:
    """It ended with a traceback."""
    root = Path(__file__).parents[1]
    run = subprocess.run([sys.executable, "-c", WITHOUT_PYTEST], cwd=root, capture_output=True, text=True)
    assert run.returncode == 1
    assert "Traceback" not in run.stderr
    assert "sh sparkop/lab/install.sh dev" in run.stderr
