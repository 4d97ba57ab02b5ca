"""Spec and facts to one container a rank; as JSON and as docker command lines. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from sparkop.engines import common, paths
from sparkop.engines.base import NodeFacts, RankContainer, StateFile
from sparkop.engines.sglang import Sglang
from sparkop.engines.template import EngineTemplate
from sparkop.engines.vllm import Vllm
from sparkop.engines.words import flags_in, repeated, values_of
from sparkop.hosts.base import ContainerOptions
from sparkop.records import dataclass
from sparkop.spec.engines import VllmEngine
from sparkop.spec.models import ClusterSpec


@dataclass(frozen=True)
class Rendering:
    """What the ranks would run."""

    ranks: tuple[RankContainer, ...]
    warnings: tuple[str, ...]
    """What the user should know, one sentence each."""
    state_files: tuple[StateFile, ...]
    """Files of the state directories that the ranks mount; their content is made on the nodes."""


def engine_of(spec: ClusterSpec) -> EngineTemplate:
    """The engine that the spec asks for."""
    return Vllm() if isinstance(spec.engine, VllmEngine) else Sglang()


def render(spec: ClusterSpec, facts: Sequence[NodeFacts]) -> Rendering:
    """One container a rank. ``facts`` are in the order of the spec's nodes.

    Raises SpecError for what can't be rendered (a key among the arguments, too few names) and BlockedError
    when a node's facts lack what its rank needs.
    """
    engine = engine_of(spec)
    ranks = engine.ranks(spec, facts)
    files = [StateFile(spec.nodes[0].name, paths.ENGINE_FILE, 0o600)] if common.has_key(spec) else []
    return Rendering(
        ranks=ranks,
        warnings=(
            *_repeated_flags(engine, spec, facts),
            *_same_everywhere(spec, facts),
            *_fabric_warnings(spec, facts),
        ),
        state_files=tuple(files),
    )


def _repeated_flags(engine: EngineTemplate, spec: ClusterSpec, facts: Sequence[NodeFacts]) -> list[str]:
    extra = common.extra_arguments(spec, rank=0)
    own = engine.own_arguments(spec, facts, 0)
    before = repeated(own, extra, engine.aliases)
    after = repeated(extra, engine.closing_arguments(spec, facts, 0), engine.aliases)
    named = _extra_fields(spec)
    return [_twice(engine, own, name, given, named) for name, given in before] + [
        f"{name} in {named} has no effect: sparkop sets it afterwards" for name, _ in after
    ]


def _extra_fields(spec: ClusterSpec) -> str:
    """The fields that hold extra arguments, as the user wrote them."""
    fields = {"engine.extraArgs": spec.engine.extra_args, "engine.headExtraArgs": spec.engine.head_extra_args}
    return " and ".join(name for name, words in fields.items() if words)


def _twice(engine: EngineTemplate, own: Sequence[str], name: str, given: str, named: str) -> str:
    among_extra = given not in flags_in(own, engine.aliases)
    winner = "the last one wins" if among_extra else f"{named} wins over the spec's own fields"
    text = f"{name} is given twice: {winner}"
    if name != given:
        text += f" ({name} stands for {given})"
    if any(value.startswith("{") for value in values_of(given, own, engine.aliases)):
        text += "; its JSON replaces the whole, nothing is merged"
    return text


def _same_everywhere(spec: ClusterSpec, facts: Sequence[NodeFacts]) -> list[str]:
    """Variables of ``engine.environment`` that give one node another node's interface, device or address."""
    return [
        f"engine.environment gives {name}={value} to every rank, but {fact.name} has {found}: "
        "take it out, nodes[].fabric says it for one node"
        for name, value in spec.engine.environment.items()
        for fact in facts
        if len(spec.nodes) > 1
        if (found := common.own_value(spec, fact, name)) is not None and found != value
    ]


def _fabric_warnings(spec: ClusterSpec, facts: Sequence[NodeFacts]) -> list[str]:
    warnings = []
    if len(spec.nodes) > 1 and spec.engine.nccl.infiniband is not False:
        warnings += [
            f"{fact.name}: no one GID index fits all RDMA devices; NCCL_IB_GID_INDEX is left unset"
            for fact in facts
            if fact.fabric and fact.fabric.hcas and common.gid_index(spec, fact) is None
        ]
    wanted = common.preload_file(spec.engine.nccl)
    missing = [fact.name for fact in facts if wanted and wanted not in fact.present]
    if missing:
        warnings.append(f"{wanted} is not on {', '.join(missing)}: every rank uses its image's own NCCL")
    return warnings


def as_json(rendering: Rendering) -> dict[str, Any]:
    """The rendering as a JSON object. It shows what would run, as the user asked; what is known to be
    a secret has been refused before."""
    return {
        "ranks": [_rank_json(rank) for rank in rendering.ranks],
        "warnings": list(rendering.warnings),
        "stateFiles": [
            {"node": file.node, "path": file.path, "mode": f"{file.mode:04o}"}
            for file in rendering.state_files
        ],
    }


def _rank_json(rank: RankContainer) -> dict[str, Any]:
    return {
        "rank": rank.rank,
        "node": rank.node,
        "container": rank.container,
        "image": rank.image,
        "entrypoint": None if rank.entrypoint is None else list(rank.entrypoint),
        "arguments": list(rank.arguments),
        "environment": dict(rank.environment),
        "mounts": [
            {"source": mount.source, "target": mount.target, "readOnly": mount.read_only}
            for mount in rank.mounts
        ],
        "options": _options_json(rank.options),
    }


def _options_json(options: ContainerOptions) -> dict[str, Any]:
    return {
        "network": options.network,
        "ipc": options.ipc,
        "privileged": options.privileged,
        "gpus": options.gpus,
        "shmBytes": options.shm_bytes,
        "ulimits": dict(options.ulimits or {}),
        "devices": list(options.devices),
        "capabilities": list(options.capabilities),
        "cpuset": options.cpuset,
        "restart": options.restart,
    }


def docker_command(rank: RankContainer) -> str:
    """The container as a shell command. It holds no key: the engine reads that from a mounted file."""
    lines = [
        "docker run --detach --name " + shlex.quote(rank.container),
        *_docker_options(rank.options),
        *(f"-v {shlex.quote(_volume(m.source, m.target, m.read_only))}" for m in rank.mounts),
        *(f"-e {shlex.quote(f'{name}={value}')}" for name, value in rank.environment.items()),
    ]
    entrypoint = list(rank.entrypoint or ())
    if entrypoint:
        lines.append("--entrypoint " + shlex.quote(entrypoint[0]))
    return " \\\n  ".join([*lines, shlex.join([rank.image, *entrypoint[1:], *rank.arguments])])


def _volume(source: str, target: str, read_only: bool) -> str:
    return f"{source}:{target}" + (":ro" if read_only else "")


def _docker_options(options: ContainerOptions) -> list[str]:
    words = ["--gpus all"] if options.gpus else []
    words.append(f"--network {options.network}")
    words += [f"--ipc {options.ipc}"] if options.ipc else []
    words += ["--privileged"] if options.privileged else []
    words += [f"--ulimit {name}={limit}" for name, limit in (options.ulimits or {}).items()]
    words += [f"--shm-size {_size(options.shm_bytes)}"] if options.shm_bytes else []
    words += [f"--device {shlex.quote(device)}" for device in options.devices]
    words += [f"--cap-add {shlex.quote(capability)}" for capability in options.capabilities]
    words += [f"--cpuset-cpus {shlex.quote(options.cpuset)}"] if options.cpuset else []
    words.append(f"--restart {options.restart}")
    return words


def _size(count: int) -> str:
    for unit, letter in ((1 << 30, "g"), (1 << 20, "m"), (1 << 10, "k")):
        if count % unit == 0:
            return f"{count // unit}{letter}"
    return str(count)
