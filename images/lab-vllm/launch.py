"""vLLM's command line, made to start faster where two ranks share two cores.

vLLM for processors starts its engine and its worker by "spawn" and looks at the model's class in a process of
its own: each imports everything again, 6 to 8 seconds of processor time. They are forked here, as vLLM does
on GPUs (with one OpenMP thread and no thread binding the reason for spawning does not apply), and the class
is looked at in place. The collector of cycles rests while modules are imported.
"""

from __future__ import annotations

import gc
import os
import sys


def fork_workers() -> None:
    """Undo what the processor platform does to the start method each time a configuration is made."""
    from vllm.platforms.cpu import CpuPlatform

    original = CpuPlatform.check_and_update_config.__func__

    def check_and_update_config(cls: type, config: object) -> None:
        original(cls, config)
        os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"

    CpuPlatform.check_and_update_config = classmethod(check_and_update_config)


def inspect_in_place() -> None:
    """The other process is there to keep CUDA from starting in this one."""
    from vllm.model_executor.models import registry

    registry._run_in_subprocess = lambda inspect: inspect()


def main() -> int:
    gc.disable()
    from vllm.entrypoints.cli.main import main as vllm_main

    fork_workers()
    inspect_in_place()
    gc.enable()
    gc.freeze()
    return vllm_main() or 0


if __name__ == "__main__":
    sys.exit(main())
