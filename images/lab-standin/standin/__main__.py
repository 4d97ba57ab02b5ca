"""``python3 -m standin vllm serve ARGUMENTS``; SGLang's is ``python3 -m sglang.launch_server``."""

from __future__ import annotations

import sys

from standin.main import run

if sys.argv[1:3] != ["vllm", "serve"]:
    sys.exit("usage: python3 -m standin vllm serve MODEL [FLAGS]")
sys.exit(run("vllm", sys.argv[3:]))
