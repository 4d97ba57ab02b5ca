"""The engine section of the spec: what vLLM and SGLang are asked to do, in the domain's words."""

from __future__ import annotations
