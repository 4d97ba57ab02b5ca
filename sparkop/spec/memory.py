"""Memory of one node: what the engine may take, and the guard that keeps the node alive."""

from typing import Literal, Self

from pydantic import Field, model_validator

from sparkop.node.memguard.guard import MARGIN, RATE
from sparkop.spec.base import SpecModel, about, refusal
from sparkop.spec.quantities import ByteSize, Duration, Some


class MemoryGuardSpec(SpecModel):
    """Kills the ranks of a node before its memory ends: at zero the node stops answering instead."""

    enabled: bool = Field(default=True, description="Whether the guard runs on every node.")
    run: Literal["container", "unit"] | None = Field(
        default=None,
        description="container: from the engine's image, by Docker. unit: a process of the node itself, by "
        "systemd where it runs; needs no image, and as any user but root only Docker can kill for it.",
        json_schema_extra=about(default="container"),
    )
    action_floor: ByteSize = Field(
        default=ByteSize(1 << 30),
        description="The guard kills the ranks of the node when MemAvailable falls under this. When "
        "it fires, lower kvCache or gpuFraction before you raise it.",
        json_schema_extra=about(unit="bytes", recipe="A: MEMGUARD_GIB"),
    )
    hard_floor: ByteSize = Field(
        default=ByteSize(512 << 20),
        description="MemAvailable that must never be reached; `sparkop memory` shows the lowest seen.",
        json_schema_extra=about(
            unit="bytes", default="512 MiB, half of a smaller actionFloor, 64 MiB under one below 128 MiB"
        ),
    )
    soft_floor: ByteSize = Field(
        default=ByteSize(10 << 30),
        description="Under this MemAvailable the guard writes the largest processes to its log.",
        json_schema_extra=about(unit="bytes", default="10 GiB, or a larger actionFloor"),
    )
    interval: Duration = Field(
        default=Duration(1.0), description="Time between two readings.", json_schema_extra=about(unit="time")
    )

    @property
    def as_unit(self) -> bool:
        """Whether it runs without a container."""
        return self.run == "unit"

    @model_validator(mode="after")
    def _floors_in_order(self) -> Self:
        if self.action_floor <= 0:
            raise refusal(
                "must be more than 0 B; memory.guard.enabled: false is no guard at all", "actionFloor"
            )
        given = self.model_fields_set  # what is left out follows actionFloor (frozen, hence past the model)
        if "hard_floor" not in given:
            least = min(self.hard_floor, self.action_floor // 2, max(0, self.action_floor - MARGIN))
            object.__setattr__(self, "hard_floor", ByteSize(least))
        if "soft_floor" not in given:
            object.__setattr__(self, "soft_floor", ByteSize(max(self.soft_floor, self.action_floor)))
        if self.hard_floor >= self.action_floor:
            raise refusal(
                f"must be less than actionFloor ({self.action_floor}), or the guard acts too late",
                "hardFloor",
            )
        if self.action_floor - self.hard_floor < MARGIN:
            why = f"growth of {ByteSize(RATE)} a second eats {ByteSize(MARGIN)} between two readings"
            if "hard_floor" not in given:
                raise refusal(f"must be at least {ByteSize(MARGIN)}: {why}", "actionFloor")
            most = f"{ByteSize(MARGIN)} under actionFloor ({self.action_floor})"
            raise refusal(f"must be at least {most}: {why}", "hardFloor")
        if self.soft_floor < self.action_floor:
            raise refusal(f"must be at least actionFloor ({self.action_floor})", "softFloor")
        if not 0.1 <= self.interval <= 60:
            raise refusal("must be from 100 ms to 60 s: memory is gone within seconds", "interval")
        return self


class MemorySpec(SpecModel):
    """Memory of one node. CPU and GPU share it on these machines."""

    kv_cache: Some[ByteSize | None] = Field(
        default=None,
        description="KV cache of one rank. Takes precedence over the share that gpuFraction would "
        "leave for it.",
        json_schema_extra=about(
            unit="bytes",
            flag="--kv-cache-memory-bytes (vLLM)",
            recipe="A: KV_BYTES",
            default="the engine's own measure",
        ),
    )
    gpu_fraction: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Share of the memory that the engine may use for weights and caches.",
        json_schema_extra=about(
            flag="--gpu-memory-utilization (vLLM), --mem-fraction-static (SGLang)",
            recipe="A: GPU_UTIL; B: MEM_FRACTION_STATIC",
            default="the engine's own",
        ),
    )
    minimum_total: ByteSize | None = Field(
        default=None,
        description="Memory that a node must have in all before anything is started on it.",
        json_schema_extra=about(unit="bytes", example="110 GiB"),
    )
    guard: MemoryGuardSpec = Field(default=MemoryGuardSpec(), description="The memory guard of every node.")
