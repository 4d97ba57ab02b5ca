"""The machines of a cluster and the network between them."""

import ipaddress
import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Discriminator, Field, GetPydanticSchema, Tag
from pydantic_core import PydanticCustomError, core_schema

from sparkop.spec.base import SpecModel, about
from sparkop.spec.folders import OwnPath
from sparkop.spec.text import Port

CONTROLLER = "controller"
"""What plans call the machine that runs sparkop; no node has this name."""
_SSH_TEXT = re.compile(
    r"\A(?:(?P<user>[A-Za-z_][\w.-]*)@)?"
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9][\w.-]*))"
    r"(?::(?P<port>[0-9]{1,5}))?\Z"
)


class SshSpec(SpecModel):
    """How a node is reached. What is left out comes from ``~/.ssh/config``, as in ssh."""

    host: str = Field(
        pattern=r"^[A-Za-z0-9:\[][\w.:\]-]*$", description="Host name, address, or alias of ~/.ssh/config."
    )
    user: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z_][\w.-]*$",
        description="User on the node.",
        json_schema_extra=about(default="as ssh does"),
    )
    port: Port | None = Field(
        default=None, description="Port of the SSH service.", json_schema_extra=about(default="as ssh does")
    )
    identity_file: str | None = Field(
        default=None,
        min_length=1,
        description="Private key on the machine that runs sparkop.",
        json_schema_extra=about(default="as ssh does"),
    )


def parse_ssh(text: str) -> SshSpec | Literal["local"]:
    """``local`` or ``user@host:port``. Raises ValueError that says what is accepted."""
    if text == "local":
        return "local"
    found = _SSH_TEXT.match(text)
    if found is None:
        if text.startswith("ssh "):
            raise ValueError("is a command: write only user@host:port; options belong in ~/.ssh/config")
        raise ValueError("must be user@host:port (user and port may be left out), or `local`")
    port = int(found["port"]) if found["port"] else None
    if port is not None and not 1 <= port <= 65535:
        raise ValueError(f"port {port} is not from 1 to 65535")
    return SshSpec(host=found["v6"] or found["host"], user=found["user"], port=port)


def _ssh_text(value: object) -> SshSpec | Literal["local"]:
    if not isinstance(value, str):
        raise PydanticCustomError("ssh", "must be text such as user@host:port, `local`, or a mapping")
    try:
        return parse_ssh(value)
    except ValueError as error:
        raise PydanticCustomError("ssh", "{message}", {"message": str(error)}) from error


def _ssh_form(value: object) -> str:
    return "mapping" if isinstance(value, (dict, SshSpec)) else "text"


SshText = Annotated[
    Literal["local"] | SshSpec,
    GetPydanticSchema(
        lambda _source, _handler: core_schema.no_info_plain_validator_function(_ssh_text),
        lambda _core, _handler: {"type": "string", "examples": ["user@10.0.0.2", "spark2", "local"]},
    ),
]
Ssh = Annotated[
    Annotated[SshSpec, Tag("mapping")] | Annotated[SshText, Tag("text")],
    Discriminator(_ssh_form),
]


def _address(value: str) -> str:
    try:
        return str(ipaddress.IPv4Address(value))
    except ValueError as error:
        raise PydanticCustomError(
            "address", "must be an IPv4 address such as 10.0.22.1 (RoCE version 2 is used over IPv4 here)"
        ) from error


Address = Annotated[str, AfterValidator(_address)]
# No \w: repeated with a bound, all letters of Unicode take 20 ms to compile.
Interface = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@-]{0,14}$")]
Hca = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$")]


class NodePaths(SpecModel):
    """Folders of one node where they differ from the cluster's. ``~`` is the node's home."""

    state: OwnPath | None = Field(
        default=None, description="State directory.", json_schema_extra=about(default="stateDirectory")
    )
    weights: OwnPath | None = Field(
        default=None,
        description="Folder of the checkpoint, or the hub cache, as in weights.",
        json_schema_extra=about(
            recipe="A: WORKER_MODEL_DIR; B: WORKER_HF_HOME", default="weights.path or weights.hubCache"
        ),
    )
    cache: OwnPath | None = Field(
        default=None,
        description="Kernel caches of the engine.",
        json_schema_extra=about(default="cache in the state directory"),
    )


class RailSpec(SpecModel):
    """One more port of a node on the fabric."""

    interface: Interface = Field(
        description="Network device.", json_schema_extra=about(example="enP2p1s0f1np1")
    )
    address: Address | None = Field(default=None, description="IPv4 address of the interface.")
    hca: Hca = Field(description="RDMA device.", json_schema_extra=about(example="roceP2p1s0f1"))


class NodeFabric(SpecModel):
    """What detection would find on one node, given by hand. A field that is left out is detected."""

    address: Address | None = Field(
        default=None,
        description="IPv4 address of the node on the fabric.",
        json_schema_extra=about(
            variable="VLLM_HOST_IP, SGLANG_HOST_IP",
            recipe="A: HEAD_IP, WORKER_IP; B: HEAD_CX7_IP, WORKER_CX7_IP",
        ),
    )
    interface: Interface | None = Field(
        default=None,
        description="Network device of that address.",
        json_schema_extra=about(
            example="enp1s0f1np1",
            variable="NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME, TP_SOCKET_IFNAME",
            recipe="A: HEAD_IFNAME, WORKER_IFNAME; B: HEAD_CX7_IF, WORKER_CX7_IF",
        ),
    )
    hcas: tuple[Hca, ...] = Field(
        default=(),
        description="RDMA devices, first rail first.",
        json_schema_extra=about(
            example="[rocep1s0f1]",
            variable="NCCL_IB_HCA",
            recipe="A: HEAD_HCAS, WORKER_HCAS; B: HEAD_CX7_IB, WORKER_CX7_IB",
        ),
    )
    gid_index: int | None = Field(
        default=None,
        ge=0,
        le=255,
        description="GID index of this node where it differs from fabric.gidIndex.",
        json_schema_extra=about(variable="NCCL_IB_GID_INDEX"),
    )
    rails: tuple[RailSpec, ...] = Field(
        default=(), max_length=3, description="Further ports of this node, after the first. They join hcas."
    )

    @property
    def all_hcas(self) -> tuple[str, ...]:
        """Devices given by hand, of all rails, each once."""
        return tuple(dict.fromkeys((*self.hcas, *(rail.hca for rail in self.rails))))


class NodeSpec(SpecModel):
    """One machine. The first node is the head and has rank 0."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]{0,62}[A-Za-z0-9])?$",
        description="Name of the node in plans and logs; also its ssh alias when ssh is left out.",
        json_schema_extra=about(example="spark1"),
    )
    ssh: Ssh | None = Field(
        default=None,
        description="user@host:port, a mapping, or `local` for the machine that runs sparkop.",
        json_schema_extra=about(
            recipe="A: WORKER; B: WORKER_HOST, WORKER_USER, WORKER_SSH",
            default="the node's name as ssh alias",
            example="user@10.0.0.2",
            value="text or mapping",
        ),
    )
    paths: NodePaths = Field(default=NodePaths(), description="Folders that differ on this node.")
    fabric: NodeFabric = Field(default=NodeFabric(), description="Overrides of detection on this node.")

    @property
    def remote(self) -> SshSpec | None:
        """How to reach the node; None for the machine that runs sparkop."""
        if self.ssh is None:
            return SshSpec(host=self.name)
        return None if self.ssh == "local" else self.ssh


class FabricSpec(SpecModel):
    """The QSFP/RoCE network between the nodes."""

    detect: bool = Field(
        default=True,
        description="Find address, interface and devices on each node. false: every node gives all "
        "three itself.",
    )
    mtu: int | None = Field(
        default=None,
        ge=1280,
        le=9216,
        description="MTU that the interfaces should have on every node. sparkop checks it and says "
        "how to set it.",
        json_schema_extra=about(
            unit="bytes, as a bare number",
            example="9000",
            default="must only be equal on all nodes",
        ),
    )
    rails: int | None = Field(
        default=None,
        ge=1,
        le=4,
        description="Ports that must be up on each node.",
        json_schema_extra=about(default="at least one"),
    )
    gid_index: int | None = Field(
        default=None,
        ge=0,
        le=255,
        description="GID index of RoCE version 2 over IPv4.",
        json_schema_extra=about(variable="NCCL_IB_GID_INDEX", default="read on each node"),
    )
    trusted: bool = Field(
        default=False,
        description="Nobody else is on this network: copies between nodes may go unencrypted (still "
        "authenticated), which is faster.",
    )
    other_routes: bool = Field(
        default=False,
        description="Weights and images may go another way between nodes than the fabric, where the routes "
        "of a node lead there. Left out: such a copy is refused.",
    )
