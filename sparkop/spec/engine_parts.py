"""What both engines share in the spec: container settings, NCCL, extra arguments, environment."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from sparkop.spec.base import SpecModel, about
from sparkop.spec.folders import SubFolder
from sparkop.spec.quantities import ByteSize, Some
from sparkop.spec.text import FilePath, Port


def setting(
    default: Any,
    description: str,
    *,
    unit: str | None = None,
    flag: str | None = None,
    variable: str | None = None,
    recipe: str | None = None,
    otherwise: str | None = None,
    example: str | None = None,
    **constraints: Any,
) -> Any:
    """A documented field of the engine section (``otherwise``: what is used while it is None)."""
    told = about(unit=unit, flag=flag, variable=variable, recipe=recipe, default=otherwise, example=example)
    return Field(default=default, description=description, json_schema_extra=told, **constraints)


def _text(value: object) -> object:
    """Numbers of YAML become text; a truth value is refused, as each program spells it in its own way."""
    if isinstance(value, bool):
        raise ValueError(
            'write a truth value as the program reads it, in quotes: "1", "0", "true" or "false"'
        )
    if isinstance(value, str) and "\0" in value:
        raise ValueError("holds a NUL character, with which no program can be started")
    return str(value) if isinstance(value, int | float) else value


Text = Annotated[str, BeforeValidator(_text, json_schema_input_type=str | int | float)]
"""A text; a number is taken as it is written."""

VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class ExtraMount(SpecModel):
    """A folder of the node that the ranks see."""

    source: FilePath = Field(description="Folder on the node; ~ is the node's home.")
    target: str = Field(description="Folder in the container.", pattern="^/")
    read_only: bool = setting(False, "The ranks can't write there.")


class ContainerSettings(SpecModel):
    """How the ranks' containers are made. Always: host network, no restart by Docker."""

    name_prefix: str | None = setting(
        None,
        "Containers are called <prefix>-r<rank>.",
        otherwise="the cluster's name",
        pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_.-]*$",
    )
    names: tuple[str, ...] = setting((), "Names by rank, instead of the prefix.")
    entrypoint: tuple[str, ...] | None = setting(None, "Replaces the image's own entrypoint.")
    gpus: bool = setting(True, "All GPUs of the node.", flag="--gpus all")
    privileged: bool = setting(False, "All capabilities and devices.", flag="--privileged")
    ipc: str | None = setting("host", "IPC namespace.", flag="--ipc")
    shm: Some[ByteSize | None] = setting(None, "Size of /dev/shm.", flag="--shm-size", unit="bytes")
    ulimits: dict[str, int] = setting({}, "Limits; -1 is unlimited.", flag="--ulimit")
    devices: tuple[str, ...] = setting((), "Devices of the node.", flag="--device")
    capabilities: tuple[str, ...] = setting((), "Added capabilities.", flag="--cap-add")
    cpuset: str | None = setting(
        None,
        "CPUs that a rank may use, such as 5-9,15-19; none or an empty text pins nothing.",
        flag="--cpuset-cpus",
        recipe="B: CPUSET",
        pattern=r"^([0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*)?$",
    )
    weights_target: str | None = setting(
        None,
        "Where the ranks see the weights.",
        otherwise="/model, or /root/.cache/huggingface for a hub cache",
        pattern="^/",
    )
    caches: dict[str, SubFolder] = setting(
        {},
        "Folders of the container that outlive it: path in the container to the name of a sub-folder of "
        "the node's cache folder (. is the cache folder itself).",
    )
    mounts: tuple[ExtraMount, ...] = setting((), "More folders of the node.")


class NcclPreload(SpecModel):
    """An NCCL of the node that is loaded instead of the image's. Used when every node has it."""

    directory: FilePath = Field(
        description="Folder on each node.", json_schema_extra=about(recipe="B: NCCL_HOST_DIR")
    )
    library: str = setting("libnccl.so.2.30.7", "File in it.", variable="LD_PRELOAD")


class NcclSettings(SpecModel):
    """The collective library. What is left out stays with NCCL's own default.

    Interface, RDMA devices and GID index of each node come from detection (``fabric`` overrides them).
    """

    infiniband: bool | None = setting(None, "RDMA may be used.", variable="NCCL_IB_DISABLE (inverted)")
    net: str | None = setting(None, "Network that has to be used.", variable="NCCL_NET")
    net_plugin: str | None = setting(None, "Network plug-in.", variable="NCCL_NET_PLUGIN")
    roce_version: int | None = setting(None, "RoCE version.", variable="NCCL_IB_ROCE_VERSION_NUM")
    merge_nics: bool | None = setting(None, "Both halves as one device.", variable="NCCL_IB_MERGE_NICS")
    devices: int | None = setting(
        None,
        "How many of the detected RDMA devices are used, that of the fabric interface first. Devices that a "
        "node's fabric.hcas names are all used.",
        variable="NCCL_IB_HCA",
        otherwise="all that are active",
        ge=1,
    )
    cross_nic: int | None = setting(
        None, "1: rings may cross rails.", variable="NCCL_CROSS_NIC", recipe="B: NCCL_CROSS_NIC", ge=0, le=2
    )
    traffic_class: int | None = setting(None, "RoCE traffic class.", variable="NCCL_IB_TC", ge=0, le=255)
    nvls: bool | None = setting(None, "NVLink SHARP.", variable="NCCL_NVLS_ENABLE")
    cumem: bool | None = setting(None, "cuMem allocations.", variable="NCCL_CUMEM_ENABLE")
    ignore_cpu_affinity: bool | None = setting(
        None, "NCCL's threads leave the CPUs that the process was given.", variable="NCCL_IGNORE_CPU_AFFINITY"
    )
    debug: str | None = setting(None, "Log level.", variable="NCCL_DEBUG", recipe="B: NCCL_DEBUG")
    preload: NcclPreload | None = setting(None, "NCCL of the node.", recipe="B: USE_HOST_NCCL")


class EngineSettings(SpecModel):
    """Fields of both engines."""

    rendezvous_port: Port = setting(
        29501,
        "Port on the head where the ranks meet, on the fabric.",
        flag="vLLM --master-port, SGLang --dist-init-addr",
        recipe="A: MPORT; B: DIST_PORT",
    )
    tensor_parallel: int | None = setting(
        None,
        "Number of shards of each tensor.",
        otherwise="one a node",
        flag="vLLM --tensor-parallel-size, SGLang --tp-size",
        ge=1,
    )
    offline: bool = setting(
        True, "The ranks never ask the hub.", variable="HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE"
    )
    nccl: NcclSettings = setting(NcclSettings(), "The collective library.")
    container: ContainerSettings = setting(ContainerSettings(), "How the containers are made.")
    environment: dict[VariableName, Text] = setting(
        {}, "Environment of every rank. Comes last and wins over what sparkop sets. Never a secret."
    )
    extra_args: tuple[Text, ...] = setting(
        (),
        "Arguments of every rank, one item a word. They come after sparkop's own and win. Never a key.",
        recipe="B: EXTRA_ARGS",
    )
    head_extra_args: tuple[Text, ...] = setting(
        (), "Like extraArgs, after them, on the head only.", recipe="A: EXTRA"
    )
