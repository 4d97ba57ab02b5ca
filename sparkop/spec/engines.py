"""The engine section of the spec: what vLLM and SGLang are asked to do, in the domain's words."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sparkop.spec.engine_parts import ContainerSettings, EngineSettings, NcclSettings
from sparkop.spec.engine_sglang import SglangEngine
from sparkop.spec.engine_vllm import VllmEngine

EngineSpec = Annotated[VllmEngine | SglangEngine, Field(discriminator="kind")]
"""vLLM or SGLang, told apart by ``kind``."""

__all__ = ["ContainerSettings", "EngineSettings", "EngineSpec", "NcclSettings", "SglangEngine", "VllmEngine"]
