"""The ClusterSpec: what a user asks for. See docs/reference/spec.md, which is made from these models."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sparkop.spec.base import SpecModel
from sparkop.spec.engines import EngineSpec
from sparkop.spec.quantities import ByteSize, Duration


class SshSpec(SpecModel):
    """How a node is reached. What is left out comes from ``~/.ssh/config``, as in ssh."""

    host: str = Field(description="Host name, address or alias of ~/.ssh/config.")
    user: str | None = None
    port: int | None = Field(default=None, ge=1, le=65535)
    identity_file: str | None = None


class NodePaths(SpecModel):
    """Folders of one node where they differ from the cluster's. ``~`` is the node's home."""

    state: str | None = None
    weights: str | None = None
    cache: str | None = None


class NodeFabric(SpecModel):
    """Overrides of what detection finds on one node."""

    address: str | None = None
    interface: str | None = None
    hcas: tuple[str, ...] = ()


class NodeSpec(SpecModel):
    """One machine. The first node is the head and has rank 0."""

    name: str
    ssh: SshSpec | Literal["local"] | str | None = Field(
        default=None, description="user@host:port, a mapping, or `local` for the machine that runs sparkop."
    )
    paths: NodePaths = NodePaths()
    fabric: NodeFabric = NodeFabric()


class FabricSpec(SpecModel):
    """The QSFP/RoCE network between the nodes."""

    mtu: int | None = Field(default=None, ge=1280, le=9216)
    rails: int | None = Field(default=None, ge=1, le=2)
    gid_index: int | None = Field(default=None, ge=0, le=255)
    trusted: bool = Field(default=False, description="Copies may go unencrypted (authenticated) over it.")


class WeightsSpec(SpecModel):
    """The checkpoint: where it comes from and where it lies on every node."""

    repository: str
    revision: str = "main"
    path: str | None = Field(default=None, description="Plain folder on every node.")
    hub_cache: str | None = Field(default=None, description="Hub cache folder (HF_HOME) instead of a plain one.")
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    manifest: str | None = Field(default=None, description="sha256sum-format file in the repository.")
    keep_parts: bool = False
    distribution: Literal["copy", "direct", "shared"] = "copy"
    endpoint: str | None = Field(default=None, description="Hub endpoint; default the public hub or HF_ENDPOINT.")


class BuildSpec(SpecModel):
    """An image built on every node."""

    context: str
    base: str
    tag: str


class ImageSpec(SpecModel):
    """The engine's image: by digest, as it is, or built."""

    reference: str | None = None
    build: BuildSpec | None = None


class MemoryGuardSpec(SpecModel):
    """Kills the ranks of a node before its memory ends."""

    enabled: bool = True
    action_floor: ByteSize = Field(default=ByteSize(1 << 30), description="MemAvailable under which it kills.")
    hard_floor: ByteSize = Field(default=ByteSize(512 << 20), description="Must never be reached.")


class MemorySpec(SpecModel):
    """Memory of one node and rank."""

    kv_cache: ByteSize | None = Field(default=None, description="KV cache bytes of one rank.")
    gpu_fraction: float | None = Field(default=None, gt=0, le=1)
    guard: MemoryGuardSpec = MemoryGuardSpec()


class ApiSpec(SpecModel):
    """The served API, on the head."""

    port: int = Field(default=8000, ge=1, le=65535)
    bind: str = "0.0.0.0"  # noqa: S104 - the recipes' own value; rule api.exposure asks for a key with it
    served_names: tuple[str, ...] = Field(min_length=1)
    key: Literal["generate", "none"] = "generate"


class CanarySpec(SpecModel):
    """The tiny streamed generation that proves the group serves."""

    prompt: str = "Say hello in one short sentence."
    max_tokens: int = Field(default=16, ge=1, le=256)
    deadline: Duration = Duration(60.0)


class ReadySpec(SpecModel):
    """When a start has failed."""

    deadline: Duration = Duration(2700.0)
    canary: CanarySpec = CanarySpec()


class ClusterSpec(SpecModel):
    """One cluster that serves one model."""

    api_version: Literal["sparkop/v1"]
    kind: Literal["ClusterSpec"] = "ClusterSpec"
    name: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$")]
    state_directory: str | None = Field(default=None, description="Default ~/.sparkop/<name>.")
    nodes: tuple[NodeSpec, ...] = Field(min_length=1)
    fabric: FabricSpec = FabricSpec()
    weights: WeightsSpec
    image: ImageSpec
    engine: EngineSpec
    memory: MemorySpec = MemorySpec()
    api: ApiSpec
    ready: ReadySpec = ReadySpec()
