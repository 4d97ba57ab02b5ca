"""Checks of what must be the same on all nodes, and of the spec itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sparkop.engines.common import has_key, image_reference, rdma_devices
from sparkop.engines.rules import Severity
from sparkop.engines.rules import check as check_rules
from sparkop.hosts.document import Document, Image
from sparkop.hosts.rails import Rail, joined
from sparkop.resources.checks.model import (
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
from sparkop.resources.checks.usable import move_address
from sparkop.resources.stamped import short_image
from sparkop.spec.tree import show_path

EXPOSURE = "api.exposure"
Read = Callable[[Document], str | None]


def _driver(document: Document) -> str | None:
    return document.gpu.devices[0].driver if document.gpu and document.gpu.devices else None


def _kernel(document: Document) -> str | None:
    return document.machine.kernel if document.machine else None


def _docker(document: Document) -> str | None:
    return document.docker.version if document.docker else None


def _toolkit(document: Document) -> str | None:
    packages = document.health.packages if document.health else None
    return (packages or {}).get("nvidia-container-toolkit")


def _firmware(document: Document) -> str | None:
    found = {d.firmware for d in (document.fabric.devices if document.fabric else ()) if d.firmware}
    return ", ".join(sorted(found)) or None


VERSIONS: dict[str, tuple[Read, str]] = {
    "GPU driver": (_driver, "sudo apt update && sudo apt full-upgrade  # on all nodes, then reboot"),
    "kernel": (_kernel, "sudo apt full-upgrade  # on all nodes, then reboot"),
    "Docker": (_docker, "sudo apt install --only-upgrade docker-ce  # or docker.io; on all nodes"),
    "container toolkit": (
        _toolkit,
        "sudo apt install --only-upgrade nvidia-container-toolkit  # on all nodes",
    ),
    "NIC firmware": (_firmware, "sudo fwupdmgr update  # on all nodes, then power cycle"),
}


def _parity(look: Look) -> Iterator[Finding]:
    first = next(iter(look.documents))
    same = []
    for name, (read, remedy) in VERSIONS.items():
        own, other = read(look.document), read(look.documents[first])
        if own is None or other is None:
            continue
        if own == other:
            same.append(f"{name} {own}")
        else:
            yield warn(name, own, f"{other}, as on {first}", remedy)
    yield from _same_image(look)
    yield from _same_weights(look)
    if same:
        yield ok(", ".join(same))


def _same_image(look: Look) -> Iterator[Finding]:
    reference = image_reference(look.spec)
    found = {
        name: document.docker.images[reference]
        for name, document in look.documents.items()
        if document.docker and reference in document.docker.images
    }
    if look.name not in found:
        return
    own = found[look.name]
    having = {name: image for name, image in found.items() if image is not None}
    if own is None:
        if having:
            yield fail(
                "image", "absent", f"{short_image(reference)}, as on {', '.join(having)}", "sparkop apply"
            )
        return
    first = next(iter(having))
    other = having[first]
    if first == look.name or _same(own, other):
        return
    if look.spec.image.build is not None:
        yield warn(
            "image", _id_of(own), f"{_id_of(other)}, as on {first}", "build it from one state of its folder"
        )
    else:
        yield fail(
            "image", _id_of(own), f"{_id_of(other)}, as on {first}", "sparkop apply pulls it by digest"
        )


def _same(own: Image, other: Image) -> bool:
    """By repo digest where both have one (docker load loses it), else by image id."""
    if own.digests and other.digests:
        return bool(set(own.digests) & set(other.digests))
    return own.id == other.id


def _id_of(image: Image) -> str:
    return short_image(image.digests[0] if image.digests else image.id)


def _same_weights(look: Look) -> Iterator[Finding]:
    own = look.document.weights
    whole = [name for name, d in look.documents.items() if d.weights is not None and d.weights.complete]
    if own is not None and not own.complete and whole:
        yield fail(
            "weights",
            f"{own.verified} files verified",
            f"complete, as on {', '.join(whole)}",
            "sparkop apply copies what is missing",
        )


def _rules(look: Look) -> Iterator[Finding]:
    """The limits of engine and model, on the facts of all nodes."""
    yield from or_ok(_of_rules(look, lambda rule: rule != EXPOSURE), "no rule objects")


def _exposure(look: Look) -> Iterator[Finding]:
    bound = f"bound to {look.spec.api.bind}" + (", with a key" if has_key(look.spec) else "")
    yield from or_ok(_of_rules(look, lambda rule: rule == EXPOSURE), bound)


def _of_rules(look: Look, chosen: Callable[[str], bool]) -> Iterator[Finding]:
    facts = [node.facts for node in look.desired.nodes.values() if node.facts is not None]
    for found in check_rules(look.spec, facts or None):
        if not chosen(found.rule.id):
            continue
        if found.override is not None:
            yield ok(f"{found.rule.id} is set aside: {found.override}")
            continue
        make = fail if found.rule.severity is Severity.ERROR else warn
        told = f"{show_path(found.path)}: {found.observed}: {found.rule.reason} [{found.rule.id}]"
        yield make("", told, "", found.rule.remedy)


def _facts_known(look: Look) -> Iterator[Finding]:
    """The variables that detection hands to NCCL, Gloo and the engine."""
    node = look.desired.nodes.get(look.name)
    fabric = node.facts.fabric if node and node.facts else None
    if fabric is None:
        yield unknown("no address for the ranks", "mend what rdma.active or fabric.ipv4 say")
        return
    yield from _apart(look)
    gid = "left unset" if fabric.gid_index is None else str(fabric.gid_index)
    yield ok(
        f"{fabric.address} on {fabric.interface}, devices {', '.join(fabric.hcas) or 'none'}, GID index {gid}"
    )


def _apart(look: Look) -> Iterator[Finding]:
    """Ranks join their devices in the order of the lists, and the first gives the address. Where ports are
    crossed between two cables, or one rail is down, the order by name puts ends of two networks together."""
    head = look.desired.head
    if look.head or head not in look.documents:
        return
    for own, other in zip(_used(look, look.name), _used(look, head), strict=False):
        if not (own.bounded and other.bounded):
            return  # told by fabric.ipv4
        if own.network != other.network:
            level = State.FAIL if look.rdma else State.WARN
            observed = f"{own.device} in {own.network}"
            wanted = f"in {other.network}, as {other.device} of {head} that it is joined with"
            yield Finding(level, observed, "devices", wanted, _by_hand(look, head), ports=(own.device,))
            return


def _used(look: Look, name: str) -> list[Rail]:
    """The rails whose devices NCCL is told to use on a node, in its order."""
    node = look.desired.nodes.get(name)
    if node is None or node.facts is None or node.facts.fabric is None:
        return []
    by_device = {rail.device: rail for rail in look.rails(name)}
    return [by_device[device] for device in rdma_devices(look.spec, node.facts) if device in by_device]


def _by_hand(look: Look, head: str) -> str:
    """What to write into the spec, so that the ends of one cable come together."""
    pairs = list(joined(look.rails(head), look.rails()))
    if not pairs:
        return move_address(look, look.rails()[0])

    def told(rails: list[Rail]) -> str:
        hcas = ", ".join(rail.device for rail in rails)
        return f"{{interface: {rails[0].interface}, address: {rails[0].address}, hcas: [{hcas}]}}"

    pairs = pairs[: look.spec.engine.nccl.devices]
    ends = ((head, [theirs for theirs, _ in pairs]), (look.name, [own for _, own in pairs]))
    return "set in the spec: " + "; ".join(f"fabric of node {name} to {told(rails)}" for name, rails in ends)


def _on_head(look: Look) -> bool:
    return look.head


CHECKS = (
    Check(
        id="fabric.place",
        reads="what is handed to NCCL, Gloo and the engine: address, interface, devices, GID index",
        bad="not known: unknown, and no rank is started; devices that are joined with the head's are in "
        "another network: fail (warn without GPUs)",
        source="recipe A",
        find=_facts_known,
        sections=("fabric", "machine"),
        applies=between_nodes,
    ),
    Check(
        id="parity",
        reads="driver, kernel, Docker, toolkit, NIC firmware, image, weights of all nodes",
        bad="they differ. Image or weights: fail; others: warn",
        source=TABLE,
        find=_parity,
        applies=between_nodes,
    ),
    Check(
        id="rules",
        reads="the spec, by the limits of its engine and model",
        bad="a rule refuses it: fail; a rule warns: warn",
        source="both recipes",
        find=_rules,
        applies=_on_head,
    ),
    Check(
        id=EXPOSURE,
        reads="address and key of the API",
        bad="all interfaces without a key: warn",
        source=TABLE,
        find=_exposure,
        applies=_on_head,
    ),
)
