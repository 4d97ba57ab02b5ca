"""What the two engines render in the same way: names, mounts, container options, NCCL's environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparkop.engines import paths
from sparkop.engines.base import FabricFacts, NodeFacts
from sparkop.engines.words import flag, holds_secret, names_secret, secrets_in
from sparkop.errors import BlockedError, SpecError
from sparkop.hosts.base import ContainerOptions, Mount
from sparkop.spec.engines import ContainerSettings, NcclSettings
from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import NodeFabric, NodeSpec
from sparkop.spec.text import is_commit


def refuse_secrets(spec: ClusterSpec) -> None:
    """Raise SpecError, never with the value, when a key is among the arguments or in the environment."""
    for field, words in (
        ("engine.extraArgs", spec.engine.extra_args),
        ("engine.headExtraArgs", spec.engine.head_extra_args),
    ):
        for name in secrets_in(words):
            raise SpecError(
                f"{field} has {name}: a key among arguments shows in `ps` and `docker inspect`",
                remedy=f"take {name} and its value out, put the key into {paths.key_path(spec)} on the head "
                "(mode 0600) and set api.key to generate: an existing key is kept",
            )
        if any(map(holds_secret, words)):
            raise SpecError(
                f"{field} has a token or an address with a password: it shows in `ps` and `docker inspect`",
                remedy="take it out; mount a file that holds it with engine.container.mounts",
            )
    for variable in secret_variables(spec):
        raise SpecError(
            f"engine.environment has {variable}: a secret there would show in `docker inspect`",
            remedy="take it out: the API key reaches the engine by a file, and the ranks need no hub token; "
            "for another service, mount a file with engine.container.mounts and name it in a variable "
            "that ends in _FILE or _PATH",
        )


def secret_variables(spec: ClusterSpec) -> list[str]:
    """Variables of the spec that carry a secret, by their names or by the looks of their values."""
    given = spec.engine.environment.items()
    return [name for name, value in given if names_secret(name, value) or holds_secret(value)]


def is_open(spec: ClusterSpec) -> bool:
    """Whether whoever reaches the API's port may use the model: without one no engine asks."""
    return not has_key(spec) and spec.api.bind not in ("127.0.0.1", "localhost", "::1")


def has_key(spec: ClusterSpec) -> bool:
    """Whether clients need a key."""
    return spec.api.key != "none"


def key_arguments(spec: ClusterSpec) -> list[str]:
    """How the head is told where its key is."""
    return flag("--config", paths.ENGINE_FILE_TARGET if has_key(spec) else None)


def extra_arguments(spec: ClusterSpec, rank: int) -> list[str]:
    """The spec's own arguments of one rank."""
    return [*spec.engine.extra_args, *(spec.engine.head_extra_args if rank == 0 else ())]


def container_names(spec: ClusterSpec) -> tuple[str, ...]:
    """Names of the ranks' containers. Raises SpecError when the spec names too few."""
    settings = spec.engine.container
    if not settings.names:
        prefix = settings.name_prefix or spec.name
        return tuple(f"{prefix}-r{rank}" for rank in range(len(spec.nodes)))
    if len(settings.names) < len(spec.nodes) or len(set(settings.names)) < len(settings.names):
        raise SpecError(
            f"engine.container.names has {len(settings.names)} names for {len(spec.nodes)} ranks, "
            "and they must differ",
            remedy="name every rank once, or use engine.container.namePrefix",
        )
    return settings.names[: len(spec.nodes)]


def image_reference(spec: ClusterSpec) -> str:
    """The image that the ranks run."""
    image = spec.image.build.tag if spec.image.build else spec.image.reference
    if image is None:
        raise ValueError("the spec has no image")  # models.ImageSpec refuses that
    return image


def weights_target(spec: ClusterSpec) -> str:
    """Where the ranks see the weights' folder or the hub cache."""
    default = paths.HUB_CACHE_TARGET if spec.weights.hub_cache else paths.PLAIN_WEIGHTS_TARGET
    return spec.engine.container.weights_target or default


def model_argument(spec: ClusterSpec, node: NodeFacts) -> str:
    """The checkpoint as a rank names it. Raises BlockedError when a hub cache's commit is not known."""
    if not spec.weights.hub_cache:
        return weights_target(spec)
    revision = spec.weights.revision
    if not is_commit(revision):
        if node.revision is None:
            raise BlockedError(
                f"the commit of {spec.weights.repository} at {revision} is not known",
                node=node.name,
                remedy="download the weights first, or set weights.revision to a commit",
            )
        revision = node.revision
    return f"{weights_target(spec)}/{paths.snapshot(spec, revision)}"


def fabric_of(node: NodeFacts) -> FabricFacts:
    """The node's fabric. Raises BlockedError when it is not known."""
    if node.fabric is None:
        raise BlockedError(
            "no fabric address is known",
            node=node.name,
            remedy="plug the cable and give the fabric interface an IPv4 address, "
            "or set the node's fabric.address, interface and hcas",
        )
    return node.fabric


def gid_index(spec: ClusterSpec, node: NodeFacts) -> int | None:
    """The RoCE v2 GID index to ask for; None leaves it to NCCL, as when a node's devices disagree."""
    by_hand = _by_hand(spec, node).gid_index
    if by_hand is not None:
        return by_hand
    return spec.fabric.gid_index if spec.fabric.gid_index is not None else fabric_of(node).gid_index


def rdma_devices(spec: ClusterSpec, node: NodeFacts) -> tuple[str, ...]:
    """The devices that NCCL uses: those given by hand, else the first of the detected ones."""
    return _by_hand(spec, node).all_hcas or fabric_of(node).hcas[: spec.engine.nccl.devices]


def _by_hand(spec: ClusterSpec, node: NodeFacts) -> NodeFabric:
    return spec.node(node.name).fabric


def weights_mount(spec: ClusterSpec, node: NodeSpec, home: str) -> Mount:
    """A plain folder is read-only; a hub cache is not, as in recipe B."""
    source = paths.expand(paths.weights_directory(spec, node), home)
    return Mount(source, weights_target(spec), read_only=not spec.weights.hub_cache)


def cache_mounts(spec: ClusterSpec, node: NodeSpec, home: str) -> list[Mount]:
    """Kernel caches that outlive the container, in the spec's order."""
    root = paths.expand(paths.cache_directory(spec, node), home)
    return [
        Mount(root if folder == "." else f"{root}/{folder}", target)
        for target, folder in spec.engine.container.caches.items()
    ]


def key_mount(spec: ClusterSpec, node: NodeSpec, home: str) -> Mount:
    """The file that hands the key to the engine."""
    state = paths.expand(paths.state_directory(spec, node), home)
    return Mount(f"{state}/{paths.ENGINE_FILE}", paths.ENGINE_FILE_TARGET, read_only=True)


def extra_mounts(settings: ContainerSettings, home: str) -> list[Mount]:
    """The spec's own mounts."""
    return [Mount(paths.expand(m.source, home), m.target, m.read_only) for m in settings.mounts]


def options(settings: ContainerSettings) -> ContainerOptions:
    """Container settings in the words of ``docker run``. Restarting is sparkop's own business."""
    return ContainerOptions(
        network="host",
        ipc=settings.ipc,
        privileged=settings.privileged,
        gpus=settings.gpus,
        shm_bytes=settings.shm,
        ulimits=dict(settings.ulimits) or None,
        devices=settings.devices,
        capabilities=settings.capabilities,
        cpuset=settings.cpuset or None,
    )


def cpus(cpuset: str) -> set[int]:
    """CPU numbers of a list such as ``5-9,15-19``; what is not a number or a range is left to Docker."""
    found: set[int] = set()
    for part in cpuset.split(","):
        first, _, last = part.partition("-")
        if first.strip().isdigit() and (not last or last.strip().isdigit()):
            found.update(range(int(first), int(last or first) + 1))
    return found


def offline_environment(offline: bool) -> dict[str, str]:
    """No rank asks the hub."""
    return {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"} if offline else {}


def nccl_environment(spec: ClusterSpec, node: NodeFacts) -> dict[str, str]:
    """NCCL's variables on one node of several: the spec's, then what detection found."""
    settings = spec.engine.nccl
    fabric = fabric_of(node)
    found: dict[str, str | None] = {
        "NCCL_IB_DISABLE": _number(settings.infiniband, invert=True),
        "NCCL_IB_ROCE_VERSION_NUM": _number(settings.roce_version),
        "NCCL_NET": settings.net,
        "NCCL_NET_PLUGIN": settings.net_plugin,
        "NCCL_IB_GID_INDEX": _number(gid_index(spec, node)),
        "NCCL_IB_HCA": ",".join(rdma_devices(spec, node)) or None,
        "NCCL_IB_MERGE_NICS": _number(settings.merge_nics),
        "NCCL_IB_TC": _number(settings.traffic_class),
        "NCCL_SOCKET_IFNAME": fabric.interface,
        "GLOO_SOCKET_IFNAME": fabric.interface,
    }
    return _given(found) | _process_environment(settings)


NODES_OWN = ("NCCL_IB_GID_INDEX", "NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
"""Variables of NCCL and Gloo that detection finds node by node."""
OWN_ADDRESS = ("VLLM_HOST_IP", "SGLANG_HOST_IP")
"""Variables by which an engine is told the node's own address on the fabric."""


def own_value(spec: ClusterSpec, node: NodeFacts, name: str) -> str | None:
    """What a node has of its own for a variable; None where the variable is not one of a node."""
    if node.fabric is None:
        return None
    if name in OWN_ADDRESS:
        return node.fabric.address
    return nccl_environment(spec, node).get(name) if name in NODES_OWN else None


def single_node_environment(spec: ClusterSpec) -> dict[str, str]:
    """NCCL's variables where no fabric is used."""
    return _process_environment(spec.engine.nccl)


def _process_environment(settings: NcclSettings) -> dict[str, str]:
    return _given(
        {
            "NCCL_NVLS_ENABLE": _number(settings.nvls),
            "NCCL_CUMEM_ENABLE": _number(settings.cumem),
            "NCCL_CROSS_NIC": _number(settings.cross_nic),
            "NCCL_IGNORE_CPU_AFFINITY": _number(settings.ignore_cpu_affinity),
            "NCCL_DEBUG": settings.debug,
        }
    )


def preload_file(settings: NcclSettings) -> str | None:
    """The node's NCCL library that would be loaded instead of the image's."""
    return f"{settings.preload.directory}/{settings.preload.library}" if settings.preload else None


def preload(spec: ClusterSpec, facts: Sequence[NodeFacts], home: str) -> tuple[list[Mount], dict[str, str]]:
    """Mount and environment of the nodes' NCCL; nothing unless all have it: two builds do not mix."""
    settings = spec.engine.nccl
    path = preload_file(settings)
    if settings.preload is None or not all(path in node.present for node in facts):
        return [], {}
    source = paths.expand(settings.preload.directory, home)
    library = f"{paths.NCCL_TARGET}/{settings.preload.library}"
    return [Mount(source, paths.NCCL_TARGET, read_only=True)], {"LD_PRELOAD": library}


def _number(value: bool | int | None, *, invert: bool = False) -> str | None:
    if value is None:
        return None
    return str(int(not value) if invert else int(value))


def _given(values: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in values.items() if value is not None}
