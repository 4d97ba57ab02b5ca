"""Rules for both engines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sparkop.engines import common, derived
from sparkop.engines.rules import Breach, Facts, Path, Rule, Severity
from sparkop.engines.words import flags_in, given_of, secrets_in, values_of
from sparkop.spec.engines import SglangEngine
from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import NodeSpec

_NOT_THE_SECRET = ("api", "key")
"""Where breaches that are about a secret point to: a refusal quotes the line that it is about."""

_FIELDS: Mapping[str, str] = {
    "--host": "api.bind",
    "--port": "api.port",
    "--served-model-name": "api.servedNames",
}
"""What the engine's API is reached by, and the fields that say it."""
_NO_FIELD = ("--uds", "--ssl-keyfile", "--ssl-certfile")
"""The same, where the spec has no field."""


def _key_in_arguments(spec: ClusterSpec, _facts: Facts) -> Iterator[Breach]:
    for name in secrets_in(common.extra_arguments(spec, rank=0)):
        yield Breach(_NOT_THE_SECRET, f"extra arguments have {name}")


def _two_in_one(spec: ClusterSpec, _facts: Facts) -> Iterator[Breach]:
    """Shows the flag only: what follows it may be a secret."""
    for word in common.extra_arguments(spec, rank=0):
        flag, blank, _ = word.partition("=")[0].partition(" ")
        if blank and word.startswith("--") and not secrets_in([word]):
            yield Breach(("engine", "extraArgs"), f"{flag} and its value are one item")


def _secret_in_environment(spec: ClusterSpec, _facts: Facts) -> Iterator[Breach]:
    for name in common.secret_variables(spec):
        yield Breach(_NOT_THE_SECRET, f"environment has {name}")


def _config(spec: ClusterSpec, _facts: Facts) -> Iterator[Breach]:
    for path, words in _extra(spec):
        if given_of(["--config"], words, {}):
            yield Breach(path, f"{path[-1]} has --config")


def _extra(spec: ClusterSpec) -> Iterator[tuple[Path, tuple[str, ...]]]:
    yield ("engine", "extraArgs"), spec.engine.extra_args
    yield ("engine", "headExtraArgs"), spec.engine.head_extra_args


def _api(spec: ClusterSpec, _facts: Facts) -> Iterator[Breach]:
    for path, words in _extra(spec):
        for flag in given_of((*_FIELDS, *_NO_FIELD), words, {}):
            field = _FIELDS.get(flag)
            yield Breach(path, f"{path[-1]} has {flag}" + (f", which is {field}" if field else ""))


def _exposed(spec: ClusterSpec, _facts: Facts) -> Iterator[Breach]:
    if common.is_open(spec):
        yield Breach(("api", "key"), f"the API listens on {spec.api.bind} without a key")


def _shards(spec: ClusterSpec, _facts: Facts) -> Iterator[Breach]:
    shards, nodes = derived.tensor_parallel(spec), len(spec.nodes)
    if shards % nodes:
        yield Breach(("engine", "tensorParallel"), f"{shards} shards for {nodes} nodes")


def _ports(spec: ClusterSpec, _facts: Facts) -> Iterator[Breach]:
    """On the head, and of SGLang on the others too: its followers listen on the API's port."""
    listening = spec.nodes if isinstance(spec.engine, SglangEngine) else spec.nodes[:1]
    held = {_ssh_port(node): f"SSH's on {node.name}" for node in reversed(listening)}
    fields = [("port" in spec.api.model_fields_set, "api", "port", spec.api.port)]
    if len(spec.nodes) > 1:
        written = "rendezvous_port" in spec.engine.model_fields_set
        fields.append((written, "engine", "rendezvousPort", spec.engine.rendezvous_port))
    for _, part, key, number in sorted(fields):  # what is written comes last: it can be pointed to
        if number in held:
            yield Breach((part, key), f"{part}.{key} is {number}, which is {held[number]}")
        held.setdefault(number, f"{part}.{key}")
    for path, words in _extra(spec):
        for flag in flags_in(words, {}):
            for value in values_of(flag, words, {}) if flag.endswith("-port") else ():
                if value.isdigit() and int(value) in held:
                    yield Breach(path, f"{path[-1]} has {flag} {value}, which is {held[int(value)]}")


def _ssh_port(node: NodeSpec) -> int:
    return (node.remote.port if node.remote else None) or 22


def _cpus(spec: ClusterSpec, facts: Facts) -> Iterator[Breach]:
    wanted = max(common.cpus(spec.engine.container.cpuset or ""), default=-1)
    for part in (spec.engine.container.cpuset or "").split(","):
        first, _, last = part.partition("-")
        if last and int(first) > int(last):
            yield Breach(("engine", "container", "cpuset"), f"{part} is no range")
    for fact in facts or ():
        if fact.cpu_count is not None and wanted >= fact.cpu_count:
            yield Breach(
                ("engine", "container", "cpuset"),
                f"CPU {wanted} is asked for, {fact.name} has 0 to {fact.cpu_count - 1}",
            )


def _memlock(spec: ClusterSpec, _facts: Facts) -> Iterator[Breach]:
    container = spec.engine.container
    rdma = len(spec.nodes) > 1 and container.gpus and spec.engine.nccl.infiniband is not False
    if rdma and container.ulimits.get("memlock") != -1:
        given = container.ulimits.get("memlock", "Docker's default")
        yield Breach(("engine", "container", "ulimits"), f"memlock is {given}")


def _shared_memory(spec: ClusterSpec, _facts: Facts) -> Iterator[Breach]:
    container = spec.engine.container
    least = 160 << 20
    if container.ipc != "host" and derived.tensor_parallel(spec) > 1 and (container.shm or 64 << 20) < least:
        given = container.shm or "Docker's 64 MiB"
        yield Breach(("engine", "container", "shm"), f"the shared memory is {given}")


RULES = (
    Rule(
        id="key.in-arguments",
        applies_to="every engine",
        reason="a secret among arguments shows in ps and docker inspect",
        source="principle 10",
        remedy="take it out, put the key into the key's file on the head and set api.key to generate: "
        "an existing key is kept",
        find=_key_in_arguments,
        overridable=False,
    ),
    Rule(
        id="engine.two-in-one",
        applies_to="every engine",
        reason="an engine takes the whole item for a flag, knows none of that name, and ends",
        source="argparse",
        remedy="write each word as an item of its own: [--flag, value]",
        find=_two_in_one,
    ),
    Rule(
        id="key.in-environment",
        applies_to="every engine",
        reason="a secret in the environment shows in docker inspect",
        source="principle 10",
        remedy="take it out: the key reaches the engine by a file, and the ranks need no hub token",
        find=_secret_in_environment,
        overridable=False,
    ),
    Rule(
        id="engine.config-file",
        applies_to="every engine",
        reason="neither the rules nor a diff see what that file sets, and with a key the engine has one "
        "already: both engines refuse a second one",
        source="vLLM 0.33 argparse_utils.py; SGLang 0.5.23 server_args.py",
        remedy="write what is in that file as fields of the spec, and as extraArgs what has none",
        find=_config,
    ),
    Rule(
        id="engine.api-by-argument",
        applies_to="every engine",
        reason="apply, status and clients look where the spec's fields say, and would wait for ever",
        source="sparkop",
        remedy="take it out and set api.port, api.bind or api.servedNames; TLS belongs into a proxy before "
        "the API",
        find=_api,
        overridable=False,
    ),
    Rule(
        id="engine.shards",
        applies_to="every engine",
        reason="each node holds the same number of shards",
        source="vLLM 0.33 arg_utils.py; SGLang 0.5.23 server_args.py",
        remedy="leave engine.tensorParallel out, or make it a multiple of the number of nodes",
        find=_shards,
    ),
    Rule(
        id="ports.same",
        applies_to="every engine",
        reason="a port of a node is held by one program, and what comes second ends at its start",
        source="bind(2)",
        remedy="a port of its own for each, such as the defaults: api.port 8000, engine.rendezvousPort 29501",
        find=_ports,
    ),
    Rule(
        id="container.cpuset",
        applies_to="every engine",
        reason="Docker refuses a container that asks for a CPU that is not there",
        source="docker run --cpuset-cpus",
        remedy="name CPUs of this machine, or pin nothing with an empty text",
        find=_cpus,
    ),
    Rule(
        id="container.memlock",
        applies_to="every engine, several nodes with RDMA",
        reason="RDMA can't register memory under a limit, and NCCL ends or falls back to TCP",
        source="both recipes; ibv_reg_mr",
        remedy="engine.container.ulimits of {memlock: -1}",
        find=_memlock,
        severity=Severity.WARNING,
    ),
    Rule(
        id="container.shm",
        applies_to="every engine, several shards",
        reason="the ranks pass messages through it, and vLLM ends with less than 160 MiB",
        source="vLLM 0.32, seen with two ranks",
        remedy="engine.container.shm of 1 GiB, or engine.container.ipc of host",
        find=_shared_memory,
        severity=Severity.WARNING,
    ),
    Rule(
        id="api.exposure",
        applies_to="every engine",
        reason="whoever reaches the port may use the model",
        source="the recipes: their API has no key",
        remedy="set api.key to generate, or api.bind to 127.0.0.1",
        find=_exposed,
        severity=Severity.WARNING,
    ),
)
