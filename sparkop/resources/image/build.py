"""An image that is built on every node, known by a label: a hash of context and base.

A base that is named by tag is what the head has under that tag: the other nodes build from the same digest.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from sparkop.errors import BlockedError, LeaseHeldError, SparkopError, UnreachableError
from sparkop.hosts.base import Json
from sparkop.hosts.document import Image
from sparkop.node.wire import standin
from sparkop.resources.acts import write_file
from sparkop.resources.base import Context, Difference
from sparkop.resources.compare import unread
from sparkop.resources.desired import Desired
from sparkop.resources.image import travel as image_travel
from sparkop.resources.image.context import BuildContext
from sparkop.resources.labels import BUILD, BUILT_FOR
from sparkop.resources.masking import mask
from sparkop.resources.observed import Observed
from sparkop.resources.operations import Action, Blocker, Cause, Operation, Unknown
from sparkop.spec.models import BuildSpec

KIND = "image"
BASE = "sparkop.base"
"""Label of a built image: the base, by digest where it has one."""
TAIL = 20
"""Lines of a failed build that are shown."""
KEPT = 5000
"""Lines of it that its node keeps."""
LOG_FILE = "logs/build.log"
"""Where, below the state folder of the node."""
LONGEST = 100
"""Characters of a step that are shown."""
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
OF_THE_BUILDER = (" --->", "Removing intermediate container")


def difference(desired: Desired, observed: Observed) -> Difference:
    """Absent, or built of something else: built (again)."""
    build = _build_of(desired)
    context = _context_of(desired)
    operations: list[Operation] = []
    blockers: list[Blocker] = []
    unknown: list[Unknown] = []
    stamp = context.stamp(_base(desired, observed))
    for node in desired.nodes.values():
        document = observed.documents[node.name]
        if document.docker is None:
            unknown.append(unread(document, "docker", node.name, KIND))
            continue
        if build.tag not in document.docker.images:
            reason = document.error("docker", build.tag) or "not in the node's answer"
            unknown.append(Unknown(node.name, f"{build.tag}: {reason}", KIND))
            continue
        found = document.docker.images[build.tag]
        cause = _cause(found, stamp)
        if cause is None or (context.problem and found is not None):
            continue
        if context.problem:
            remedy = "correct image.build.context, or name an image with image.reference"
            blockers.append(Blocker(node.name, KIND, Cause("image", "absent", context.problem), remedy))
        else:
            head = next((o for o in operations if o.node == desired.head), None)
            first = "@" not in build.base or desired.spec.image.distribution == "copy"
            needs = (head.key,) if head and first else ()  # so that it has what the others may lack
            operations.append(Operation(Action.BUILD, node.name, KIND, cause, needs=needs))
    warnings = _other_bases(desired, observed)
    if context.problem:
        warnings = (f"image.build: {context.problem}: images are not compared", *warnings)
    return Difference(tuple(operations), tuple(blockers), tuple(unknown), warnings)


def awaited(desired: Desired, observed: Observed, node: str) -> str:
    """The label of the image that will be built on the node; empty where what is there stays."""
    docker, context = observed.documents[node].docker, _context_of(desired)
    tag, stamp = _build_of(desired).tag, context.stamp(_base(desired, observed))
    if docker is None or tag not in docker.images or context.problem:
        return ""
    return stamp if _cause(docker.images[tag], stamp) else ""


def perform(operation: Operation, context: Context, bring: Callable[[str], None]) -> str:
    """Build on the operation's node; ``bring`` gets a reference there. Returns the tag.

    Where it can't be built, the same image comes from a node that has it, known by its label. Raises
    BlockedError with the last lines of a build that failed.
    """
    build, files, node = _build_of(context.desired), _context_of(context.desired), operation.node
    base = build.base
    if "@" not in base:
        if node == context.desired.head and image_travel.look(context, node, base) is None:
            bring(base)
        base = _by_digest(base, image_travel.look(context, context.desired.head, base))
    context.log(f"base: {base}")
    stamp = files.stamp(base)
    try:
        _build(context, node, base, stamp, bring)
    except BlockedError as error:
        source = image_travel.giver_of(context, node, build.tag, lambda it: it.labels.get(BUILD) == stamp)
        if source is None:
            raise
        context.log(f"not built here ({error.message}: {error.cause}); the same comes from {source}")
        image_travel.travel(context, source, node, build.tag)
    return build.tag


def _build(context: Context, node: str, base: str, stamp: str, bring: Callable[[str], None]) -> None:
    build, files = _build_of(context.desired), _context_of(context.desired)
    found = image_travel.look(context, node, base)
    if found is None:
        bring(base)
        found = image_travel.look(context, node, base)
    here = base if found is None or found.digests else standin(base) or base  # as its engine calls it
    cluster = context.desired.spec.name
    stream = context.host(node).containers.build(
        files.labelled(BUILT_FOR, cluster),
        build.tag,
        arguments={"BASE": here},
        labels={BUILD: stamp, BASE: base, BUILT_FOR: cluster},
        fence=context.fence(node),
    )
    _follow(stream, context, node, build.tag)


def _build_of(desired: Desired) -> BuildSpec:
    build = desired.spec.image.build
    assert build is not None  # resource.py asks
    return build


def _context_of(desired: Desired) -> BuildContext:
    found = desired.outside.get(KIND)
    return found if isinstance(found, BuildContext) else BuildContext(problem="the context was not read")


def _base(desired: Desired, observed: Observed) -> str:
    """The base that all nodes should have been built from, as far as it is known."""
    build = _build_of(desired)
    document = observed.documents.get(desired.head)
    if "@" in build.base or document is None or document.docker is None:
        return build.base
    base, built = document.docker.images.get(build.base), document.docker.images.get(build.tag)
    if base is not None:
        return _by_digest(build.base, base)
    remembered = built.labels.get(BASE, "") if built else ""
    same_name = remembered.partition("@")[0] == _name(build.base)
    return remembered if "@" in remembered and same_name else build.base


def _other_bases(desired: Desired, observed: Observed) -> tuple[str, ...]:
    """A base that was built or loaded on the nodes has no digest: only its id tells whether it is one."""
    base = _build_of(desired).base
    found = {
        name: docker.images.get(base)
        for name in desired.nodes
        if (docker := observed.documents[name].docker) is not None
    }
    head = found.get(desired.head)
    if "@" in base or head is None or _by_digest(base, head) != base:
        return ()
    return tuple(
        f"{name}: {base} is another image than on {desired.head}, and has no digest: name a base of a "
        "registry, or copy it there (docker save, docker load)"
        for name, image in found.items()
        if image is not None and image.id != head.id
    )


def _by_digest(reference: str, found: Image | None) -> str:
    """``name@sha256:...`` of an image found under a tag; the tag of one that has no digest (built there)."""
    digests = found.digests if found else ()
    own = [digest for digest in digests if digest.partition("@")[0] == _name(reference)]
    return next(iter(own), reference)


def _name(reference: str) -> str:
    """A reference without its tag."""
    name, colon, tag = reference.rpartition(":")
    return name if colon and "/" not in tag else reference


def _cause(found: Image | None, stamp: str) -> Cause | None:
    if found is None:
        return Cause("image", "absent", f"built, {_short(stamp)}")
    return of_other_files(found.labels.get(BUILD), stamp)


def of_other_files(stamped: str | None, stamp: str) -> Cause | None:
    """Why an image, or a rank of it, can't stay where one with the label ``stamp`` is wanted."""
    if stamped == stamp:
        return None
    return Cause("image.build", _short(stamped) if stamped else "not built by sparkop", _short(stamp))


def _short(stamp: str) -> str:
    return stamp[: len("v1:") + 12]


def _shortened(line: str) -> str:
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def _follow(stream: Iterator[Json], context: Context, node: str, tag: str) -> None:
    """Tell the steps as they come. Raises BlockedError for a step that failed."""
    said: deque[str] = deque(maxlen=KEPT)
    step = "a step"
    for item in stream:
        if not isinstance(item, dict):
            continue
        for line in str(item.get("stream") or "").splitlines():
            line = COLOUR.sub("", line)
            if line.startswith(OF_THE_BUILDER):
                continue
            said.append(line)
            if line.startswith("Step "):
                step = _shortened(line)
                context.progress(step)
        error = item.get("error")
        if error:
            code = (item.get("errorDetail") or {}).get("code")
            kept = _keep(context, node, [*said, str(error)])
            more = f", all of them in {kept}" if kept else ""
            raise BlockedError(
                f"building {tag} failed",
                node=node,
                cause=f"{step} ended with exit code {code}" if code else str(error),
                remedy=f"the step's last words are above{more}: correct image.build.base or the files in "
                "image.build.context, then sparkop apply",
                detail="\n".join(_last_words(said)),
            )


def _last_words(said: Iterable[str]) -> list[str]:
    return [line for line in said if line.strip() and not line.startswith("Step ")][-TAIL:]


def _keep(context: Context, node: str, lines: Iterable[str]) -> str:
    """Keep what the build said on its node, for its owner; where that is, or nothing: it is told without."""
    path = f"{context.desired.nodes[node].state}/{LOG_FILE}"
    content = "".join(f"{mask(line)}\n" for line in lines).encode()
    try:
        write_file(context, node, path, content, mode=0o600)
    except (LeaseHeldError, UnreachableError):
        raise
    except SparkopError as error:
        context.log(f"what the build said is not kept: {error.message}")
        return ""
    return f"{node}:{path}"
