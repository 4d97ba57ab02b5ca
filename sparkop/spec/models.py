"""The ClusterSpec: what a user asks for. See docs/reference/spec.md, which is made from these models."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sparkop.spec.base import SpecModel, about, refusal
from sparkop.spec.clients import ClientsSpec
from sparkop.spec.engines import EngineSpec
from sparkop.spec.folders import OwnPath, among_states, is_within
from sparkop.spec.memory import MemorySpec
from sparkop.spec.nodes import CONTROLLER, FabricSpec, NodeSpec
from sparkop.spec.quantities import ByteSize, Duration, Some
from sparkop.spec.text import Glob, Port


class WeightsSpec(SpecModel):
    """The checkpoint: where it comes from and where it lies on every node."""

    repository: str = Field(
        pattern=r"^[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?$",
        description="Repository of the model on the hub, as owner/name.",
        json_schema_extra=about(example="RadixArk/Qwen3.8-Flash-Next-NVFP4"),
    )
    revision: str = Field(
        default="main",
        min_length=1,
        description="Branch, tag or commit. A commit never changes under you; quote it when it looks "
        "like a number.",
        json_schema_extra=about(recipe="A: REVISION; B: HF_REVISION"),
    )
    path: OwnPath | None = Field(
        default=None,
        description="Plain folder on every node that holds the checkpoint. Either this or hubCache.",
        json_schema_extra=about(recipe="A: MODEL_DIR", example="~/models/DeepSeek-V4.1-Flash-Spark"),
    )
    hub_cache: OwnPath | None = Field(
        default=None,
        description="Hub cache folder (what HF_HOME names) on every node. Either this or path.",
        json_schema_extra=about(recipe="B: HF_HOME", example="~/.cache/huggingface"),
    )
    include: tuple[Glob, ...] = Field(
        default=(), description="Only files that match one of these patterns are fetched. Empty: all files."
    )
    exclude: tuple[Glob, ...] = Field(
        default=(), description="Files that match one of these are not fetched."
    )
    manifest: str | None = Field(
        default=None,
        description="File in the repository in sha256sum format. What it lists is verified by it, "
        "after the hub's own hashes.",
        json_schema_extra=about(example="sha256-manifest.txt"),
    )
    required: tuple[str, ...] = Field(
        default=(),
        description="Files that the repository must have, or nothing is fetched; relative to the "
        "checkpoint. A folder ends in a slash. Every file is verified before a rank starts.",
    )
    keep_parts: bool = Field(
        default=False,
        description="Keep the .partNN files of a shard after it was put together and verified, on the "
        "node that downloads; a copy to the others leaves them out.",
        json_schema_extra=about(recipe="A: KEEP_PARTS"),
    )
    distribution: Literal["copy", "direct", "shared"] = Field(
        default="copy",
        description="copy: one node downloads and sends to the others over the fabric. direct: every "
        "node downloads. shared: the folder is one file system on all nodes.",
        json_schema_extra=about(recipe="B: DOWNLOAD_MODE", hint="the recipe's rsync is copy"),
    )
    download_on: str | None = Field(
        default=None,
        description="Name of the node that downloads when distribution is copy.",
        json_schema_extra=about(default="the head"),
    )
    free_space: ByteSize | None = Field(
        default=None,
        description="Free space that the whole download needs on the node that downloads; of a download "
        "that is half done, half of it.",
        json_schema_extra=about(unit="bytes", default="what is still to be fetched"),
    )
    endpoint: str | None = Field(
        default=None,
        pattern=r"^https?://[^\s/@]+(/[^\s]*)?$",
        description="Address of the hub, without user and password.",
        json_schema_extra=about(default="HF_ENDPOINT, else the public hub"),
    )

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.path is None and self.hub_cache is None:
            raise refusal(
                "needs path (a plain folder) or hubCache (a hub cache), to know where the weights lie"
            )
        if self.path is not None and self.hub_cache is not None:
            raise refusal("path and hubCache exclude each other: keep one", "hubCache")
        return self


_NAME = r"^[a-z0-9][A-Za-z0-9_.:-]*(/[A-Za-z0-9_.:-]+)*"
IMAGE_REFERENCE = _NAME + r"(@sha256:[0-9a-f]{64})?$"
"""An image's name as Docker reads it, by tag, digest or both."""
IMAGE_TAG = _NAME + "$"
"""The name of an image that is made: its digest is not known before."""


class BuildSpec(SpecModel):
    """An image built on every node."""

    context: str = Field(
        min_length=1,
        description="Build context: a folder beside the spec, or a name of a context that sparkop ships.",
        json_schema_extra=about(example="sglang-sm121"),
    )
    base: str = Field(
        min_length=1,
        pattern=IMAGE_REFERENCE,
        description="Image that the build starts from: name:tag, or better name@sha256: and 64 digits.",
        json_schema_extra=about(recipe="B: BASE_IMAGE"),
    )
    tag: str = Field(
        min_length=1,
        pattern=IMAGE_TAG,
        description="Name of the built image, name:tag in small letters.",
        json_schema_extra=about(recipe="B: PATCHED_IMAGE"),
    )

    @model_validator(mode="after")
    def _not_its_own_base(self) -> Self:
        if self.tag == self.base:
            raise refusal("tag is the base's own name: each build would start from the one before", "tag")
        return self


class ImageSpec(SpecModel):
    """The engine's image: by digest, as it is, or built. One of reference and build."""

    reference: str | None = Field(
        default=None,
        pattern=IMAGE_REFERENCE,
        description="Image to pull, best by digest (name@sha256:...): then every node runs the same bytes.",
        json_schema_extra=about(recipe="A: IMG; B: IMAGE"),
    )
    distribution: Literal["copy", "direct"] = Field(
        default="copy",
        description="copy: one node pulls and sends to the others over the fabric, so the registry is asked "
        "once; where a copy can't be done, the node pulls. direct: every node pulls.",
    )
    pull_on: str | None = Field(
        default=None,
        description="Name of the node that pulls when distribution is copy.",
        json_schema_extra=about(default="weights.downloadOn, else the head"),
    )
    build: BuildSpec | None = Field(
        default=None,
        description="Build the image on every node.",
        json_schema_extra=about(recipe="B: KERNEL_PATCH"),
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.reference is None and self.build is None:
            raise refusal("needs reference (an image to pull) or build (an image to make)")
        if self.reference is not None and self.build is not None:
            raise refusal("reference and build exclude each other: keep one", "build")
        return self


class ApiSpec(SpecModel):
    """The served API, on the head."""

    port: Port = Field(
        default=8000,
        description="Port of the API on the head.",
        json_schema_extra=about(flag="--port", recipe="A: PORT; B: PORT"),
    )
    bind: str = Field(
        default="0.0.0.0",  # noqa: S104 - the recipes' own value; rule api.exposure asks for a key with it
        min_length=1,
        description="Address that the API listens on. 127.0.0.1: only the head itself.",
        json_schema_extra=about(flag="--host", recipe="B: HOST_BIND"),
    )
    served_names: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        min_length=1,
        description="Names under which clients ask for the model.",
        json_schema_extra=about(
            flag="--served-model-name", recipe="B: SERVED_MODEL_NAME", example="[deepseek-v4.1-flash]"
        ),
    )
    key: Literal["generate", "none"] = Field(
        default="generate",
        description="generate: a key is made once on the head, kept in keyFile (mode 0600) and asked "
        "of clients; it is never shown or logged. none: anyone who reaches the port may "
        "use the API.",
        json_schema_extra=about(
            recipe="B: API_KEY",
            hint="a key of your own goes into the file that keyFile names, never here",
        ),
    )
    key_file: OwnPath | None = Field(
        default=None,
        description="File of the key on the head. An existing key is used as it is.",
        json_schema_extra=about(recipe="A: API_KEY_FILE", default="api_key in stateDirectory"),
    )

    @property
    def own_address(self) -> str:
        """The address by which the head itself reaches the API."""
        # By IPv6 where it listens on all of that: the port may be closed to IPv4 then.
        return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.bind, self.bind)  # noqa: S104

    @model_validator(mode="after")
    def _key_file_needs_key(self) -> Self:
        if self.key == "none" and self.key_file is not None:
            raise refusal(
                "has no meaning while key is none: leave it out, or write `key: generate`", "keyFile"
            )
        return self


class CanarySpec(SpecModel):
    """The tiny streamed generation that proves the group serves."""

    prompt: str = Field(
        default="Say hello in one short sentence.", min_length=1, description="What the model is asked."
    )
    max_tokens: int = Field(
        default=16, ge=1, le=256, description="Length of the answer.", json_schema_extra=about(unit="tokens")
    )
    deadline: Some[Duration] = Field(
        default=Duration(60.0),
        description="Time for the whole answer. Long prompts in the queue delay it: rather too long "
        "than too short.",
        json_schema_extra=about(unit="time"),
    )


class ReadySpec(SpecModel):
    """When a start has succeeded, and when it has failed."""

    deadline: Some[Duration] = Field(
        default=Duration(2700.0),
        description="Time from the start of the ranks to the first token. A first boot takes about 13 min.",
        json_schema_extra=about(unit="time", recipe="B: WAIT_TIMEOUT_MIN"),
    )
    canary: CanarySpec = Field(
        default=CanarySpec(), description="The generation that proves that tokens come out."
    )


class RuleOverride(SpecModel):
    """A rule that the user sets aside, knowingly."""

    id: str = Field(
        pattern=r"^[a-z0-9]+([.-][a-z0-9]+)*$",
        description="Id of the rule, as its refusal shows it.",
        json_schema_extra=about(example="sglang.chunk"),
    )
    reason: str = Field(
        min_length=10, description="Why it is safe here. Kept in the history and shown by status."
    )


class RulesSpec(SpecModel):
    """The safety rules of engines and models."""

    override: tuple[RuleOverride, ...] = Field(
        default=(), description="Rules that are set aside, each with the reason."
    )

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        seen: set[str] = set()
        for index, each in enumerate(self.override):
            if each.id in seen:
                raise refusal(f"sets {each.id} aside a second time", "override", index, "id")
            seen.add(each.id)
        return self


class ClusterSpec(SpecModel):
    """One cluster of machines that serves one model."""

    api_version: Literal["sparkop/v1"] = Field(
        description="Version of this language.", json_schema_extra=about(example="sparkop/v1")
    )
    kind: Literal["ClusterSpec"] = Field(default="ClusterSpec", description="What this document is.")
    name: str = Field(
        pattern=r"^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$",
        description="Name of the cluster: small letters, digits and hyphens, at most 40. In labels "
        "and paths.",
        json_schema_extra=about(example="sparks"),
    )
    state_directory: OwnPath | None = Field(
        default=None,
        description="Folder on every node for the key, the caches, the lease, the history and the "
        "guard's log.",
        json_schema_extra=about(recipe="A: STATE_DIR", default="~/.sparkop/<name>"),
    )
    nodes: tuple[NodeSpec, ...] = Field(
        min_length=1,
        description="The machines, in rank order. The first is the head: it has rank 0 and serves the API.",
        json_schema_extra=about(example="[{name: spark1}, {name: spark2}]"),
    )
    fabric: FabricSpec = Field(default=FabricSpec(), description="The fast network between the nodes.")
    weights: WeightsSpec = Field(description="The checkpoint.")
    image: ImageSpec = Field(description="The container image of the engine.")
    engine: EngineSpec = Field(description="The engine and what it is asked to do.")
    memory: MemorySpec = Field(default=MemorySpec(), description="Memory of each node, and its guard.")
    api: ApiSpec = Field(description="The served API.")
    ready: ReadySpec = Field(default=ReadySpec(), description="Deadlines of a start, and its proof.")
    clients: ClientsSpec = Field(default=ClientsSpec(), description="How clients are set up.")
    rules: RulesSpec = Field(default=RulesSpec(), description="Safety rules that are set aside.")

    @property
    def state(self) -> str:
        """State directory on every node, ``~`` unexpanded; a node's own is ``node.paths.state``."""
        return self.state_directory or self.default_state

    @property
    def default_state(self) -> str:
        """Where the state directory is when the spec names none."""
        return f"~/.sparkop/{self.name}"

    @property
    def head(self) -> NodeSpec:
        """The node of rank 0."""
        return self.nodes[0]

    def node(self, name: str) -> NodeSpec:
        """A node by its name, which is one of the spec's."""
        return next(node for node in self.nodes if node.name == name)

    @model_validator(mode="after")
    def _names(self) -> Self:
        names: set[str] = set()
        for index, node in enumerate(self.nodes):
            if node.name == CONTROLLER:
                raise refusal(
                    f"{CONTROLLER} is what plans call the machine that runs sparkop", "nodes", index, "name"
                )
            if node.name in names:
                raise refusal(f"two nodes have the name {node.name}", "nodes", index, "name")
            names.add(node.name)
        chosen = (
            (self.weights.download_on, "weights", "downloadOn"),
            (self.image.pull_on, "image", "pullOn"),
        )
        for name, *place in chosen:
            if name is not None and name not in names:
                told = f"is no node; accepted: {', '.join(node.name for node in self.nodes)}"
                raise refusal(told, *place)
        return self

    @model_validator(mode="after")
    def _folders_apart(self) -> Self:
        """destroy removes the state folder whole, and the weights only when it is told to."""
        for index, node in enumerate(self.nodes):
            own: tuple[str | int, ...] = ("nodes", index, "paths")
            weights, place = node.paths.weights, (*own, "weights")
            if weights is None:
                weights = self.weights.hub_cache or self.weights.path or ""
                place = ("weights", "hubCache" if self.weights.hub_cache else "path")
            state, cache = node.paths.state or self.state, node.paths.cache
            if is_within(weights, state) or is_within(state, weights):
                told = f"and the state folder {state} of {node.name} lie within one another"
                raise refusal(f"{weights} {told}: sparkop destroy would remove both", *place)
            if cache is not None and is_within(weights, cache):
                told = f"lies within {cache}, which the ranks write: name a place of its own"
                raise refusal(f"{weights} {told}", *place)
            if cache is not None and is_within(state, cache):
                raise refusal(
                    f"{cache} holds the state folder {state}: the ranks would see the key", *own, "cache"
                )
        return self

    @model_validator(mode="after")
    def _not_in_states(self) -> Self:
        """Every folder in ``~/.sparkop`` is a cluster's state folder: nothing else lies in another's."""
        for index, node in enumerate(self.nodes):
            own, state = ("nodes", index, "paths"), node.paths.state or self.state
            folder = among_states(state)
            if folder is not None and not is_within(folder, state):
                place = (*own, "state") if node.paths.state else ("stateDirectory",)
                raise refusal(f"{state} lies within {folder}, a state folder: name another place", *place)
            named = {
                (*own, "weights"): node.paths.weights,
                (*own, "cache"): node.paths.cache,
                ("weights", "path"): self.weights.path,
                ("weights", "hubCache"): self.weights.hub_cache,
                ("api", "keyFile"): None if index else self.api.key_file,
            }
            for where, path in named.items():
                other = among_states(path) if path else None
                if other is not None and not is_within(path or "", state):
                    told = f"lies within {other}, which is the state folder of another cluster"
                    raise refusal(f"{path} {told}: name another place", *where)
        return self

    @model_validator(mode="after")
    def _fabric_by_hand(self) -> Self:
        if self.fabric.detect or len(self.nodes) == 1:
            return self
        for index, node in enumerate(self.nodes):
            given = {
                "address": node.fabric.address,
                "interface": node.fabric.interface,
                "hcas": node.fabric.all_hcas,
            }
            missing = [key for key, value in given.items() if not value]
            if missing:
                message = f"needs {', '.join(missing)} under fabric, because fabric.detect is false"
                raise refusal(message, "nodes", index, "fabric")
        return self
