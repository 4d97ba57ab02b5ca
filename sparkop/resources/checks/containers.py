"""Checks of Docker, containers, ports, and of the NCCL that the ranks load."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from sparkop.engines.common import preload_file
from sparkop.hosts import silent_docker
from sparkop.hosts.document import Library
from sparkop.resources.checks.model import (
    PREREQUISITES,
    TABLE,
    Check,
    Finding,
    Look,
    State,
    between_nodes,
    fail,
    ok,
    or_ok,
    unknown,
    warn,
)
from sparkop.resources.foreign import KIND as FOREIGN
from sparkop.resources.foreign import Foreign, ports_taken
from sparkop.resources.labels import ROLE_RANK, ours
from sparkop.resources.observed import History, Observed
from sparkop.resources.operations import Blocker


def _access(look: Look) -> Iterator[Finding]:
    document = look.document
    if document.docker is not None:
        yield ok(f"Docker {document.docker.version}")
        return
    if document.error("docker") is None:
        yield unknown("docker was not read", error=False)
    elif silent_docker.is_stopped(document):
        told, remedy = silent_docker.why(document), silent_docker.remedy(document)
        yield Finding(State.FAIL, told, remedy=remedy, error=True)
    elif silent_docker.is_refused(document):
        yield fail("docker", "permission denied", "usable by this user", silent_docker.remedy(document))
    else:
        yield unknown(silent_docker.why(document), silent_docker.remedy(document), error=True)


def _gpu(look: Look) -> Iterator[Finding]:
    """Stock DGX OS lists no nvidia runtime, and --gpus all works all the same."""
    docker, health, tools = look.document.docker, look.document.health, look.document.tools or {}
    ways = [f"runtime {name}" for name in (docker.runtimes if docker else ()) if "nvidia" in name]
    ways += ["nvidia-ctk"] if tools.get("nvidia-ctk") else []
    ways += [path for path in (health.cdi if health else None) or () if "nvidia" in path]
    packages = (health.packages if health else None) or {}
    ways += [f"{name} {version}" for name, version in packages.items()]
    if ways:
        yield ok(", ".join(ways))
    elif docker is None or health is None or not docker.runtimes:
        yield unknown("runtimes and CDI files were not read")
    else:
        yield fail(
            "GPU for containers",
            "no toolkit, no /etc/cdi, no nvidia runtime",
            "one of them",
            "sudo apt install nvidia-container-toolkit; sudo nvidia-ctk runtime configure --runtime=docker; "
            "sudo systemctl restart docker",
        )


def _store(look: Look) -> Iterator[Finding]:
    docker = look.document.docker
    if docker is None or docker.driver is None:
        yield unknown("the engine's settings were not read")
    elif docker.snapshotter and look.spec.image.build is not None:
        yield warn(
            "image store",
            "containerd's: an image id can be a manifest digest",
            "the classic one, where built images are compared by id",
            "compare what the images hold: docker image inspect --format '{{json .RootFS.Layers}}' IMAGE",
        )
    elif docker.snapshotter:
        yield ok(f"{docker.driver} of containerd; images are compared by repo digest")
    else:
        yield ok(docker.driver)


def _limits(look: Look) -> Iterator[Finding]:
    yield from or_ok(_missing_limits(look), "memlock and /dev/infiniband")


def _missing_limits(look: Look) -> Iterator[Finding]:
    settings, health = look.spec.engine.container, look.document.health
    if not settings.privileged and not any("infiniband" in device for device in settings.devices):
        yield fail(
            "engine.container.devices",
            "without /dev/infiniband",
            "/dev/infiniband: else NCCL falls back to TCP silently",
            "engine.container.devices: [/dev/infiniband], or privileged: true",
        )
    if settings.ulimits.get("memlock") != -1:
        yield fail(
            "engine.container.ulimits.memlock",
            str(settings.ulimits.get("memlock", "not set")),
            "-1: else RDMA memory can't be registered",
            "engine.container.ulimits: {memlock: -1}",
        )
    devices = health.infiniband if health else None
    if devices is not None and not any(name.startswith("uverbs") for name in devices):
        yield fail(
            "/dev/infiniband",
            ", ".join(devices) or "empty",
            "a uverbs device for each RDMA device",
            "sudo modprobe ib_uverbs mlx5_ib",
        )


def _wants_rdma(look: Look) -> bool:
    return look.rdma


def _blockers(look: Look) -> list[Blocker]:
    """What holds names and ports of the ranks, as ``apply`` sees it."""
    found = Foreign().diff(look.desired, Observed(look.documents), History())
    return [blocker for blocker in found.blockers if blocker.node == look.name]


def _ports(look: Look) -> Iterator[Finding]:
    taken = [b for b in _blockers(look) if b.resource.startswith(f"{FOREIGN}/port-")]
    for each in taken:
        yield fail(each.cause.field, each.cause.observed, each.cause.desired, each.remedy)
    if not taken:
        yield ok(f"{', '.join(look.document.ports or ())}: free, or held by our ranks")


def _listens(look: Look) -> bool:
    return bool(ports_taken(look.spec, look.name))


def _stale(look: Look) -> Iterator[Finding]:
    yield from or_ok(_left_over(look), "no left-over container")


def _left_over(look: Look) -> Iterator[Finding]:
    for each in _blockers(look):
        if not each.resource.startswith(f"{FOREIGN}/port-"):
            yield fail(each.cause.field, each.cause.observed, each.cause.desired, each.remedy)
    epochs = [s.epoch for d in look.documents.values() for c, s in ours(d, look.spec.name, ROLE_RANK)]
    newest = max(epochs, default=0)
    for container, stamp in ours(look.document, look.spec.name, ROLE_RANK):
        if stamp.epoch != newest:
            yield fail(
                f"container {container.name}",
                f"{container.state}, of start {stamp.epoch}",
                f"of start {newest}, as the other ranks: a left-over rank blocks the rendezvous",
                "sparkop apply replaces it",
            )
        elif stamp.rank >= len(look.spec.nodes):
            yield fail(
                f"container {container.name}",
                f"rank {stamp.rank}",
                f"ranks 0 to {len(look.spec.nodes) - 1}",
                "sparkop apply removes it",
            )


def _nccl_files(look: Look) -> Iterator[Finding]:
    yield from or_ok(_present_files(look), "no /etc/nccl.conf, no ~/.nccl.conf")


def _present_files(look: Look) -> Iterator[Finding]:
    health = look.document.health
    for path, names in ((health.nccl_files if health else None) or {}).items():
        place = f"~/{quote(path[2:])}" if path.startswith("~/") else quote(path)
        yield warn(
            path,
            f"present ({', '.join(names) or 'sets nothing'})",
            "absent: it overrides what the spec says",
            f"sudo mv {place} {place}.off  # put what you need under engine.nccl",
        )


def _staged(look: Look) -> Iterator[Finding]:
    """The NCCL of the node: one build on all nodes, or the image's own on all."""
    path = preload_file(look.spec.engine.nccl)
    libraries = look.document.libraries
    if path is None or libraries is None:
        return
    found = {name: (d.libraries or {}).get(path) for name, d in look.documents.items()}
    if path not in libraries:
        reason = look.document.error("libraries", path)
        yield unknown(f"{path}: {reason or 'was not read'}", error=reason is not None)
        return
    own = found[look.name]
    others = {name: library for name, library in found.items() if library and name != look.name}
    if own is None and not others:
        yield ok(f"{path} is on no node: every rank loads its image's own NCCL")
    elif own is None:
        yield warn(
            path,
            "absent",
            f"as on {', '.join(others)}: now every rank loads its image's own NCCL",
            f"copy it from {next(iter(others))}, the same file: two builds do not mix",
        )
    else:
        told = _build(own)
        differing = next((n for n, library in others.items() if library.sha256 != own.sha256), None)
        if differing is not None and list(found).index(differing) < list(found).index(look.name):
            other = others[differing]
            yield fail(
                path,
                told,
                f"{_build(other)}, as on {differing}",
                f"copy the file from {differing}: two builds do not mix",
            )
        elif own.version is not None and own.version.split("+")[0] not in path:
            yield warn(
                path, told, "the version that its name says", "stage the library again, under its name"
            )
        else:
            yield ok(f"host build, {told}")


def _build(library: Library) -> str:
    return f"NCCL {library.version or 'of unknown version'}, sha256 {library.sha256[:12]}"


CHECKS = (
    Check(
        id="docker.access",
        reads="Docker's socket, groups of the user",
        bad="permission denied, or nobody listens at the socket: fail (in the group, but not in this login: "
        "log in again). A socket that is there and does not answer: unknown",
        source=TABLE,
        find=_access,
        sections=("machine",),
        kind=PREREQUISITES,
    ),
    Check(
        id="docker.gpu",
        reads="container toolkit, /etc/cdi, runtimes",
        bad="none of them: fail. No nvidia runtime alone is normal on stock DGX OS",
        source=TABLE,
        find=_gpu,
        sections=("docker",),
        applies=lambda look: look.gpus,
    ),
    Check(
        id="docker.store",
        reads="driver and its status",
        bad="containerd's image store, where the image is built on the nodes: warn",
        source=TABLE,
        find=_store,
        sections=("docker",),
    ),
    Check(
        id="container.limits",
        reads="memlock and /dev/infiniband of the ranks, devices of the node",
        bad="missing: fail. NCCL falls back to TCP silently",
        source=TABLE,
        find=_limits,
        applies=_wants_rdma,
    ),
    Check(
        id="ports",
        reads="who listens on the API's and the rendezvous port of the head; SGLang's workers have one, too",
        bad="something that is not ours: fail (it is named, never killed)",
        source=TABLE,
        find=_ports,
        sections=("ports", "docker"),
        applies=_listens,
    ),
    Check(
        id="stale",
        reads="containers with our labels or names",
        bad="of another start, of a rank that is not wanted, or not ours: fail",
        source=TABLE,
        find=_stale,
        sections=("docker",),
    ),
    Check(
        id="nccl.conf",
        reads="/etc/nccl.conf, ~/.nccl.conf",
        bad="present: warn. It overrides what the spec says",
        source=TABLE,
        find=_nccl_files,
        sections=("health.nccl_files",),
        applies=between_nodes,
    ),
    Check(
        id="nccl.preload",
        reads="version and SHA-256 of the NCCL that engine.nccl.preload names",
        bad="another build than on the first node: fail; on some nodes only, or not what its name says: warn",
        source="recipe B",
        find=_staged,
        applies=between_nodes,
    ),
)
