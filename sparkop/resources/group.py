"""The ranks of a cluster as they were found, and why they can't stay. Pure; ranks and endpoint share it."""

from __future__ import annotations

from datetime import datetime
from math import inf

from sparkop.engines.common import container_names
from sparkop.hosts.document import Container, Document
from sparkop.records import dataclass
from sparkop.resources.desired import Desired, DesiredRank
from sparkop.resources.image import build as image_build
from sparkop.resources.image.context import BuildContext
from sparkop.resources.labels import BUILD, ROLE_RANK, Stamp, ours
from sparkop.resources.observed import History, Observed
from sparkop.resources.operations import Cause, Origin
from sparkop.resources.stamped import changed_field, ports_of, short_image
from sparkop.serving.canary import EndpointState, Serving
from sparkop.spec.models import ClusterSpec

HOPELESS = (
    Serving.WEDGED,
    Serving.BROKEN,
    Serving.DEGENERATE,
    Serving.SILENT,
    Serving.LOADING,
    Serving.FAILED,
    Serving.GPU_LOST,
)
"""What a group may be restarted for, once it had its time."""


KEY = "key"
KEY_REMEDY = (
    "sparkop apply restarts the ranks with the key in the file; to keep the one that runs, remove the file: "
    "sparkop apply then restores it, and restarts nothing"
)
"""What a human can do about ranks that run with another API key than the key file has."""

PATIENCE = {
    Serving.WEDGED: 0.0,
    Serving.BROKEN: 0.0,
    Serving.DEGENERATE: 0.0,
    Serving.GPU_LOST: 0.0,
    Serving.SILENT: 300.0,
}
"""Seconds that a group that has served before may be so; only who looks again and again knows how long."""

LATE = 300.0
"""Seconds beyond ``ready.deadline`` for which ranks that say nothing yet count as loading: who waited in vain
can wait on. After that they hang."""


@dataclass(frozen=True)
class Found:
    """A container with a rank's labels."""

    node: str
    container: Container
    stamp: Stamp

    @property
    def resource(self) -> str:
        """How plans call it."""
        return f"rank/{self.stamp.rank}" if self.stamp.rank >= 0 else self.left_over

    @property
    def left_over(self) -> str:
        """How plans call it when no rank of the spec has this name on this node."""
        return f"rank/{self.container.name}"


@dataclass(frozen=True)
class Group:
    """What was found of all ranks, and what is wrong with it."""

    found: tuple[Found, ...]
    """Every container with the labels of a rank of this cluster, by node and name."""
    causes: tuple[tuple[str, str, Cause], ...] = ()
    """Resource, node and why. Empty: the ranks are as desired and run."""
    warnings: tuple[str, ...] = ()
    origin: Origin = Origin.DRIFT
    left_over: tuple[Found, ...] = ()
    """Those of ``found`` that no rank of the spec wants: removed, without touching a group that is right."""

    @property
    def epoch(self) -> int:
        """The highest number among the containers; 0 without any."""
        return max((f.stamp.epoch for f in self.found), default=0)

    @property
    def generation(self) -> int:
        return max((f.stamp.generation for f in self.found), default=0)


def found_ranks(desired: Desired, observed: Observed) -> tuple[Found, ...]:
    """Containers of ranks on all nodes that were read, in the nodes' order."""
    return tuple(
        Found(node, container, stamp)
        for node in desired.nodes
        for container, stamp in ours(observed.documents[node], desired.spec.name, ROLE_RANK)
    )


def down(desired: Desired, document: Document) -> dict[str, str]:
    """Containers of ranks on a node that don't run: how plans call the rank -> their state."""
    found = ours(document, desired.spec.name, ROLE_RANK)
    return {f"rank/{stamp.rank}": state_text(each) for each, stamp in found if not each.running}


def missing(desired: Desired, node: str, document: Document) -> tuple[str, ...]:
    """Ranks of the spec without a container on their node, as plans call them; none where Docker was not
    read. Known by their names: also while another node is unknown, so that no rank is rendered."""
    found = {container.name for container, _ in ours(document, desired.spec.name, ROLE_RANK)}
    names = zip(desired.spec.nodes, container_names(desired.spec), strict=True)
    return tuple(
        f"rank/{rank}"
        for rank, (own, name) in enumerate(names)
        if own.name == node and document.docker is not None and name not in found
    )


def as_a_human_wants(desired: Desired, observed: Observed, history: History) -> bool:
    """A human has stopped it, and no node that was read has a rank."""
    return history.intent.stopped and not found_ranks(desired, observed)


def not_running(desired: Desired, observed: Observed) -> tuple[str, ...]:
    """Ranks that don't run, with their state; empty when all do. Of a node that was not read nobody knows."""
    read = {name for name, document in observed.documents.items() if document.docker is not None}
    found = {each.stamp.rank: each for each in found_ranks(desired, observed)}
    if not found:
        return ("there are no ranks",)
    return tuple(
        f"rank {rank} on {node.name} {state_text(found[rank].container) if rank in found else 'is missing'}"
        for rank, node in enumerate(desired.spec.nodes)
        if node.name in read and (rank not in found or not found[rank].container.running)
    )


def holds_ports(container: Container) -> bool:
    """Whether its processes are there, and what they listen on with them; a paused one has them, too."""
    return container.state not in ("created", "exited", "dead")


def ports_held(cluster: str, document: Document) -> frozenset[int] | None:
    """The ports that the cluster's ranks on a node hold, or will once they load; None: can't be told."""
    ranks = [stamp for container, stamp in ours(document, cluster, ROLE_RANK) if holds_ports(container)]
    held = [ports_of(stamp.desired) for stamp in ranks]
    known = [ports for ports in held if ports is not None]
    return frozenset().union(*known) if len(known) == len(held) else None


def elsewhere(desired: Desired, observed: Observed) -> bool:
    """The ranks on the head were started with another port for the API. Every node was read."""
    held = ports_held(desired.spec.name, observed.documents[desired.head])
    return bool(held and desired.spec.api.port not in held)


def examine(desired: Desired, observed: Observed, history: History) -> Group:
    """Compare every rank; the group's own faults (epochs, endpoint) only when all ranks are right."""
    found = found_ranks(desired, observed)
    by_place = {(f.node, f.container.name): f for f in found}
    causes: list[tuple[str, str, Cause]] = []
    order: dict[str, float] = {}
    origin = Origin.DRIFT
    for rank in desired.ranks:
        own = by_place.pop((rank.node, rank.name), None)
        cause = _rank_cause(desired, rank, own) or _rebuilt(desired, observed, rank, own)
        if cause is not None:
            if own is not None and _of_changed_files(desired, cause, own):
                origin = Origin.FILES if origin is Origin.DRIFT else origin
            elif own is not None and cause.field != "state" and own.stamp.spec != desired.spec_hash:
                origin = Origin.SPEC
            causes.append((f"rank/{rank.rank}", rank.node, cause))
            if own is not None:
                order[f"rank/{rank.rank}"] = _order(desired, cause, own, observed.documents[rank.node])
    causes.sort(key=lambda each: order.get(each[0], -inf))
    left_over = tuple(by_place.values())
    if any(each.stamp.spec != desired.spec_hash for each in left_over):
        origin = Origin.SPEC
    if not causes and found:
        causes += _group_causes(desired, observed, history, tuple(f for f in found if f not in left_over))
    return Group(found, tuple(causes), desired.notes, origin, left_over)


def may_serve(desired: Desired, group: Group) -> bool:
    """Whether requests may be answered: not where a rank of it has ended or was removed.
    One that is paused may go on."""
    ranks = [each for each in group.found if each not in group.left_over]
    if not all(holds_ports(each.container) for each in ranks):
        return False
    gone = any(cause.field == "container" for _, _, cause in group.causes)
    return not (gone and any(each.stamp.spec == desired.spec_hash for each in ranks))


def _order(desired: Desired, cause: Cause, own: Found, document: Document) -> float:
    """A rank ends because another one did: the first to end comes first. What merely comes with the next
    start, such as a rail that is back, comes last."""
    if cause.field == "state":
        return -(ended_ago(own.container, document) or 0.0)
    return inf if own.stamp.spec == desired.spec_hash else -inf


def _of_changed_files(desired: Desired, cause: Cause, own: Found) -> bool:
    """The image is built of other files than the one that runs: on its base, these would be another image."""
    base, context = own.container.labels.get(image_build.BASE), desired.outside.get(image_build.KIND)
    if cause.field != "image.build" or base is None or not isinstance(context, BuildContext):
        return False
    return context.stamp(base) != own.container.labels.get(BUILD)


def _rank_cause(desired: Desired, rank: DesiredRank, own: Found | None) -> Cause | None:
    if own is None:
        return Cause("container", "missing", "running")
    ended = None if own.container.running else Cause("state", state_text(own.container), "running")
    if ended is not None and own.stamp.spec == desired.spec_hash:
        return ended
    if not rank.made(own.stamp.hash):
        changed = changed_field(own.stamp.desired, rank.text)
        if changed is None:
            return Cause("hash", own.stamp.hash[:15] or "none", "that of the spec")
        return Cause(*changed)
    if ended is not None:
        return ended
    if own.stamp.rank != rank.rank:
        return Cause("rank", str(own.stamp.rank), str(rank.rank))
    return None


def _rebuilt(desired: Desired, observed: Observed, rank: DesiredRank, own: Found | None) -> Cause | None:
    """A built image was built anew under its tag, or will be, and the rank still runs the old one.

    What will be built is known by its label before it is there: what has its tag until then tells nothing.
    """
    if own is None or desired.spec.image.build is None:
        return None
    ran = own.container.labels.get(BUILD)
    if wanted := image_build.awaited(desired, observed, rank.node):
        return image_build.of_other_files(ran, wanted)
    docker = observed.documents[rank.node].docker
    image = docker.images.get(rank.container.image) if docker else None
    if image is None or own.container.image_id == image.id:
        return None
    built = image.labels.get(BUILD)
    if built is not None and ran == built:  # of the same files, without Docker's cache
        return None
    return Cause("image", short_image(own.container.image_id), short_image(image.id))


def _group_causes(
    desired: Desired, observed: Observed, history: History, found: tuple[Found, ...]
) -> list[tuple[str, str, Cause]]:
    epochs = sorted({f.stamp.epoch for f in found})
    if len(epochs) > 1:
        told = " and ".join(map(str, epochs))
        return [("rank/all", desired.head, Cause("epoch", told, "one for all ranks"))]
    serving = observed.endpoint.serving
    if serving is Serving.UNAUTHORISED and observed.key is not None and not observed.key.problem:
        return [
            ("rank/all", desired.head, Cause(KEY, "the ranks run with another", "the one in the key file"))
        ]
    if serving not in HOPELESS or not had_its_time(desired, observed, history, found):
        return []
    hangs = [each for each in found if each.container.halted]
    if hangs:
        wrong = Cause("state", "stopped by a signal", "running")
        return [(each.resource, each.node, wrong) for each in hangs]
    detail = f"{serving}: {observed.endpoint.detail}" if observed.endpoint.detail else str(serving)
    return [("rank/all", desired.head, Cause("endpoint", detail, "tokens"))]


def had_its_time(desired: Desired, observed: Observed, history: History, found: tuple[Found, ...]) -> bool:
    """Whether the group is past its start: it has served before, it answers, or its ``start_window`` is over.
    Of one that served and has a rank that was started anew outside of sparkop, that rank's counts. What loads
    says 503 or nothing: bad tokens are a fault, also of a group of which nobody saw a good one.

    Who looks again and again gives a group that has served its ``PATIENCE``, however old it is. Ages are
    taken by each node's own clock.
    """
    patience, lasted = PATIENCE.get(observed.endpoint.serving), observed.endpoint.lasted
    served = 0 < history.ready_epoch == found[0].stamp.epoch
    answers = observed.endpoint.serving is Serving.DEGENERATE
    if (served or answers) and patience is not None:
        if lasted is not None:
            return lasted >= patience
        if not patience:
            return True
    ages = [age(f.container, observed.documents[f.node]) for f in found]
    known = [seconds for seconds in ages if seconds is not None]
    return bool(known) and min(known) > start_window(desired.spec, observed.endpoint)


def unrecorded(desired: Desired, observed: Observed, history: History) -> Stamp | None:
    """Of a group that serves as desired without an entry of that: whoever waited for it was killed, or its
    history is lost. Until it is written, its faults count as part of its start."""
    if observed.endpoint.serving is not Serving.READY:
        return None
    group = examine(desired, observed, history)
    own = [each.stamp for each in group.found if each not in group.left_over]
    return own[0] if own and not group.causes and history.ready_epoch < own[0].epoch else None


def start_window(spec: ClusterSpec, endpoint: EndpointState) -> float:
    """Seconds from the start of the youngest rank until a group that gives no token is started anew."""
    quiet = endpoint.serving in (Serving.SILENT, Serving.LOADING)
    return float(spec.ready.deadline) + (LATE if quiet else 0.0)


def age(container: Container, document: Document) -> float | None:
    """Seconds since it was started, by the node's clock; None when that is not known."""
    return _since(container.started_at, document)


def ended_ago(container: Container, document: Document) -> float | None:
    """Seconds since it ended, by the node's clock; None when it has not, or that is not known."""
    return _since(container.finished_at, document)


def _since(moment: str | None, document: Document) -> float | None:
    if moment is None or document.machine is None:
        return None
    try:
        at = datetime.fromisoformat(moment).timestamp()
    except ValueError:
        return None
    return max(0.0, document.machine.time_s - at)


def state_text(container: Container) -> str:
    """``exited (137, out of memory)``."""
    if container.exit_code is None:
        return container.state
    memory = ", out of memory" if container.oom_killed else ""
    return f"{container.state} ({container.exit_code}{memory})"
