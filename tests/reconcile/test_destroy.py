"""destroy: everything of ours goes, nothing of others, and the weights only when asked."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sparkop.errors import BlockedError, SparkopError
from sparkop.hosts import simulated, simulated_document
from sparkop.hosts.base import Host
from sparkop.hosts.simulated_node import Answer, Fault, SimulatedCrash, SimulatedImage, SimulatedNode
from sparkop.reconcile.destroy import Destroyed, destroy, plan_destroy
from sparkop.reconcile.observe import observe
from sparkop.reconcile.status import status_of
from sparkop.resources.base import Context
from sparkop.resources.events import Phase
from sparkop.resources.image import resource as image
from sparkop.resources.labels import BUILD, BUILT_FOR
from sparkop.resources.made import Made
from sparkop.resources.weights.files import Checkpoint
from tests.reconcile.simulation import COMMIT, IMAGE, SIMULATED, Cluster, PlayedWeights, spec_of
from tests.reconcile.worlds import CHANGES


def destroyed(cluster: Cluster, **options: Any) -> Destroyed:
    return destroy(
        cluster.spec,
        cluster.hosts(),
        clock=cluster.clock,
        resources=SIMULATED,
        emit=cluster.events.append,
        **options,
    )


def serving() -> Cluster:
    cluster = Cluster.make()
    cluster.apply()
    return cluster


def ours_left(cluster: Cluster) -> list[str]:
    """Files, containers and images that are there."""
    found = []
    for node in cluster.world.nodes.values():
        found += [path for path in (*node.files, *node.folders) if ".sparkop" in path]
        found += [*node.containers, *node.images]
    return found


def test_nothing_of_ours_is_left() -> None:
    """State folders, containers, images; the checkpoint stays."""
    cluster = serving()
    result = destroyed(cluster)
    assert ours_left(cluster) == []
    assert set(result.removed) == {"spark-1", "spark-2"}
    assert all(node.checkpoint for node in cluster.world.nodes.values())


def test_a_folder_with_files_of_somebodys_is_refused_and_stays() -> None:
    """apply moved into a folder that held a user's files, and destroy removed them with it."""
    cluster = Cluster.make()
    for node in cluster.world.nodes.values():
        node.files[node.path("~/.sparkop/test/other/user-file.json")] = (b"{}", 0o644)
        node.files[node.path("~/.sparkop/test/mine.json")] = (b"{}", 0o644)
    before = cluster.shape()
    with pytest.raises(BlockedError, match=r"files that are not sparkop's \(mine.json, other\)"):
        cluster.apply()
    assert destroyed(cluster).removed == {}
    assert cluster.shape() == before
    assert cluster.world.writes == []
    assert any("(mine.json, other): it stays" in event.text for event in cluster.events)


def test_files_of_somebodys_that_came_later_stay_and_are_named() -> None:
    """The state folder went whole, with what a user had put there. A second destroy leaves it, too."""
    cluster = serving()
    mine = {cluster.node("spark-1").path(f"~/.sparkop/test/{name}") for name in ("mine.json", "notes/a")}
    for path in mine:
        cluster.node("spark-1").files[path] = (b"{}", 0o644)
    cluster.apply()
    result = destroyed(cluster)
    assert set(ours_left(cluster)) == mine
    folder = "/home/spark/.sparkop/test"
    assert result.removed["spark-1"][-1] == f"sparkop's files in {folder}"
    assert result.removed["spark-2"][-1] == "state folder"
    told = f"kept: {folder}, which has files that are not sparkop's (mine.json, notes)"
    assert [(event.node, event.text) for event in cluster.events if "kept" in event.text] == [
        ("spark-1", told)
    ]
    writes = len(cluster.world.writes)
    assert destroyed(cluster).removed == {}
    assert any("(mine.json, notes): it stays" in event.text for event in cluster.events)
    assert len(cluster.world.writes) == writes


def test_two_nodes_that_are_one_machine_are_refused_at_once_and_destroyed_once() -> None:
    """apply worked on for a while; destroy ended with the lease lost, as the first node's folder had it."""
    cluster = Cluster.make()
    host = cluster.hosts()["spark-1"]
    twice: dict[str, Host] = {"spark-1": host, "spark-2": host}
    with pytest.raises(BlockedError, match="the same machine as spark-1"):
        cluster.apply(twice)
    assert cluster.world.writes == []
    cluster.spec = spec_of(1)
    cluster.apply({"spark-1": host})
    cluster.spec = spec_of()
    result = destroy(
        cluster.spec, twice, clock=cluster.clock, resources=SIMULATED, emit=cluster.events.append
    )
    assert "state folder" in result.removed["spark-1"]
    assert ours_left(cluster) == []


def test_a_checkpoint_within_the_state_folder_is_refused_and_never_goes_without_being_asked_for() -> None:
    """The two were compared by their text, with another home than the node's: the weights went, too."""
    cluster = Cluster.make(spec_of(2, weights={"path": "/home/spark/.sparkop/test/w"}))
    with pytest.raises(BlockedError, match="test/w lies within it"):
        cluster.apply()
    with pytest.raises(BlockedError, match=r"lies within .*; nothing was removed") as told:
        destroyed(cluster)
    assert "--weights" in (told.value.remedy or "")
    assert cluster.world.writes == []


@pytest.mark.parametrize("action", ["pull", "copy"])
def test_an_image_that_came_when_its_command_was_dead_goes_too(
    action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy runs on without its command, and what it brought stayed on the node, unsaid (a reader)."""
    real = getattr(image, f"_{action}")

    def killed(context: Context, node: str, *rest: str) -> None:
        real(context, node, *rest)
        raise SimulatedCrash

    monkeypatch.setattr(image, f"_{action}", killed)
    cluster = Cluster.make(spec_of(2))
    with suppress(SimulatedCrash):
        cluster.apply()
    came = [name for name, node in cluster.world.nodes.items() if node.images]
    assert came == {"pull": ["spark-1"], "copy": ["spark-1", "spark-2"]}[action]
    monkeypatch.undo()
    destroyed(cluster)
    assert ours_left(cluster) == []


TAG = "lab/engine:nightly"
FIRST, SECOND = (SimulatedImage(f"sha256:{each * 64}", (f"lab/engine@sha256:{each * 64}",)) for each in "34")
MINE = SimulatedImage("sha256:" + "2d" * 32)


def tagged(image: SimulatedImage | None) -> Cluster:
    """A cluster whose image is named by a tag, and what a registry has under it."""
    cluster = Cluster.make(spec_of(image={"reference": TAG}))
    cluster.world.registry.clear()
    if image is not None:
        cluster.world.registry[TAG] = image
    return cluster


def remembered(cluster: Cluster) -> list[str]:
    """Kinds of events of the images that came, of every node."""
    found = []
    for node in cluster.world.nodes.values():
        history = node.document_of(node.path("history.json", "~/.sparkop/test")) or {"entries": []}
        found += [each["event"] for each in history["entries"] if each["event"] == "pulled"]
    return found


def test_an_image_of_the_users_stays_after_a_pull_of_its_name_was_refused() -> None:
    """ "manifest unknown", and yet it was remembered as pulled: what the user built under that name went."""
    cluster = tagged(None)
    with pytest.raises(BlockedError, match="pulling lab/engine:nightly failed"):
        cluster.apply()
    assert remembered(cluster) == []
    cluster.node("spark-1").images[TAG] = MINE
    destroyed(cluster)
    assert cluster.node("spark-1").images == {TAG: MINE}


def test_an_image_that_may_still_come_is_remembered_after_a_pull_was_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A copy that was given up goes on, on its node."""
    monkeypatch.setattr(image, "call", lambda *_: {"running": True})
    cluster = tagged(None)
    with pytest.raises(BlockedError, match="pulling lab/engine:nightly failed"):
        cluster.apply()
    assert remembered(cluster) == ["pulled"]


def test_an_image_that_a_user_has_put_under_a_pulled_tag_stays() -> None:
    """Only the name was remembered, and whatever stood under it went. What is remembered is the image."""
    cluster = tagged(FIRST)
    cluster.apply()
    cluster.node("spark-2").images[TAG] = MINE
    destroyed(cluster)
    assert cluster.node("spark-1").images == {}
    assert cluster.node("spark-2").images == {TAG: MINE}
    assert not [path for path in cluster.node("spark-2").files if ".sparkop" in path]


def killed_in_the_pull(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it can remember what has come, or what has not."""

    def kill(*_: object) -> None:
        raise SimulatedCrash

    monkeypatch.setattr(image, "_pull", kill)


def test_an_image_of_the_users_stays_after_a_pull_of_its_name_was_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The name alone was remembered, for ever: what the user built under it went, from every node. What came
    while no sparkop was there stays too: nobody can tell it from that."""
    cluster = tagged(FIRST)
    with monkeypatch.context() as patch, suppress(SimulatedCrash):
        killed_in_the_pull(patch)
        cluster.apply()
    cluster.node("spark-1").images[TAG] = MINE
    destroyed(cluster)
    assert cluster.node("spark-1").images == {TAG: MINE}
    assert any(f"docker rmi {TAG}" in event.text for event in cluster.events)


def test_an_image_of_ours_whose_tag_has_moved_is_remembered_after_a_refused_pull() -> None:
    """It lost its id, and was nobody's."""
    cluster = tagged(FIRST)
    cluster.apply()
    cluster.node("spark-1").images[TAG] = SECOND
    cluster.world.registry.clear()
    with suppress(BlockedError):
        cluster.apply()
    cluster.node("spark-1").images.pop(TAG)
    destroyed(cluster)
    assert cluster.node("spark-2").images == {}


def test_an_image_that_came_because_its_tag_has_moved_goes() -> None:
    """The head's is the user's."""
    cluster = tagged(FIRST)
    cluster.apply()
    cluster.node("spark-1").images[TAG] = cluster.world.registry[TAG] = SECOND
    cluster.apply()
    assert cluster.node("spark-2").images[TAG].id == SECOND.id
    destroyed(cluster)
    assert cluster.node("spark-1").images == {TAG: SECOND}
    assert cluster.node("spark-2").images == {}


def test_an_image_that_was_there_before_stays() -> None:
    """Only what sparkop pulled is sparkop's to remove."""
    cluster = Cluster.make()
    cluster.node("spark-1").images[IMAGE] = SimulatedImage("sha256:" + "1d" * 32, (IMAGE,))
    cluster.apply()
    destroyed(cluster)
    assert list(cluster.node("spark-1").images) == [IMAGE]
    assert list(cluster.node("spark-2").images) == []


HUB = {"path": None, "hubCache": "~/.cache/hugging face"}
SNAPSHOT = f"/home/spark/.cache/hugging face/hub/models--owner--model/snapshots/{COMMIT}"


def holding(**weights: Any) -> Cluster:
    cluster = Cluster.make(spec_of(weights=weights))
    cluster.apply()
    return cluster


@pytest.mark.parametrize("weights", [{}, HUB], ids=["plain", "hub"])
def test_the_weights_go_from_every_node_only_when_asked_and_only_their_own_files(weights: Any) -> None:
    """In the hub's layout nothing went. A file that someone put beside the checkpoint stays."""
    cluster = holding(**weights)
    before = dict(cluster.node("spark-1").checkpoint)
    beside = "/home/spark/models/model/mine.safetensors"
    cluster.node("spark-1").checkpoint[beside] = {"size": 1, "verified": False}
    destroyed(cluster)
    assert before.keys() < cluster.node("spark-1").checkpoint.keys()
    result = destroyed(cluster, weights=True)
    assert list(cluster.node("spark-1").checkpoint) == [beside]
    assert cluster.node("spark-2").checkpoint == {}
    folder = next(iter(before)).rpartition("/")[0].partition("/snapshots/")[0]
    for removed in result.removed.values():
        assert not [name for name in removed if "made/" in name], "no words of the inside"
        assert any(name.startswith(f"checkpoint (3.0 GiB in {folder}") for name in removed)
    assert ours_left(cluster) == []


def test_what_goes_of_the_weights_is_told_before_anything_is_written() -> None:
    """Size, path and node; who says no has lost nothing."""
    cluster = holding(**HUB)
    before, told = cluster.shape(), list[str]()

    def no(going: tuple[str, ...]) -> None:
        told.extend(going)
        raise BlockedError("no")

    writes = len(cluster.world.writes)
    with pytest.raises(BlockedError):
        destroyed(cluster, weights=True, agree=no)
    folder = SNAPSHOT.partition("/snapshots/")[0]
    assert told == [f"{name}: 3.0 GiB in {folder}" for name in ("spark-1", "spark-2")]
    assert len(cluster.world.writes) == writes
    assert cluster.shape() == before


def test_a_folder_that_all_nodes_share_is_removed_once_and_named_once() -> None:
    cluster = holding(**HUB, distribution="shared")
    told: list[str] = []
    destroyed(cluster, weights=True, agree=told.extend)
    assert [write.action for write in cluster.world.writes].count("weights.remove") == 1
    assert len(told) == 1
    assert told[0].startswith("spark-1, spark-2: ")


def test_files_that_another_cluster_uses_stay_and_are_named() -> None:
    """Two clusters on one folder: destroy --weights of one took what the other serves."""
    cluster = holding()
    first, second = (cluster.node(f"spark-{number}") for number in (1, 2))
    name = names_of(second)[0]
    second.claims = {"other": [name]}
    result = destroyed(cluster, weights=True)
    notes = [event.text for event in cluster.events if event.phase is Phase.NOTE]
    assert notes == [
        "kept: 1 file of the checkpoint in /home/spark/models/model, which cluster other uses too"
    ]
    assert (names_of(first), names_of(second)) == ([], [name])
    assert any(each.startswith("checkpoint (") for each in result.removed["spark-2"])


def test_in_a_folder_that_all_nodes_share_what_any_of_them_knows_of_others_stays() -> None:
    cluster = holding(distribution="shared")
    nodes = list(cluster.world.nodes.values())
    names = names_of(nodes[0])
    for node, name in zip(nodes, names, strict=True):
        node.claims = {f"of {node.name}": [name]}
    destroyed(cluster, weights=True)
    assert [names_of(node) for node in nodes] == [names, names]


def names_of(node: SimulatedNode) -> list[str]:
    """Files of the checkpoint that are there."""
    return [path.rpartition("/")[2] for path in node.checkpoint]


def test_transfers_end_before_what_they_write_is_removed() -> None:
    """On every node: one that goes on would bring the files back."""
    cluster = holding(**HUB)
    resources = (*SIMULATED, Made(PlayedWeights()))
    plan = plan_destroy(
        observe(cluster.spec, cluster.hosts(), clock=cluster.clock, resources=resources), weights=True
    )
    weights = [o for o in plan.operations if o.resource == "made/weights"]
    assert {need for o in weights for need in o.needs} == {
        o.key for o in plan.operations if o.resource == "made/transfers"
    }
    assert len({o.node for o in plan.operations if o.resource == "made/transfers"}) == 2


def test_files_that_are_not_known_are_told_and_nothing_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub is away, and nothing is remembered: the command ended well, and 135 GB were still there."""
    cluster = holding(**HUB)
    away = Checkpoint(None, error=BlockedError("the hub does not answer"))
    monkeypatch.setattr(PlayedWeights, "prepare", lambda _self, _spec: away)
    before = cluster.shape()
    with pytest.raises(BlockedError) as told:
        destroyed(cluster, weights=True)
    assert told.value.cause == "the hub does not answer"
    assert cluster.shape() == before


@pytest.mark.parametrize("case", ["unread", "link"])
def test_a_checkpoint_that_can_t_be_removed_is_told_and_nothing_is_removed(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = holding(**HUB)
    before = cluster.shape()
    if case == "unread":
        cluster.node("spark-2").errors["removable"] = "PermissionError: Permission denied: /x"
    else:
        real = simulated_document.document

        def linked(node: Any, request: Any, nonce: str) -> dict[str, Any]:
            found = real(node, request, nonce)
            if node.name == "spark-2" and "removable" in found:
                found["removable"]["link"] = "/home/spark/link"
            return found

        monkeypatch.setattr(simulated, "document", linked)
    with pytest.raises(BlockedError, match="nothing was removed") as told:
        destroyed(cluster, weights=True)
    assert told.value.node == "spark-2"
    assert cluster.shape() == before


def test_others_are_not_touched() -> None:
    """A user's container and another cluster's."""
    cluster = serving()
    others = {"jellyfin": {}, "x": {"labels": {"sparkop.cluster": "other", "sparkop.role": "rank"}}}
    CHANGES["containers"](cluster.node("spark-1"), others)
    destroyed(cluster)
    assert set(cluster.node("spark-1").containers) == set(others)


def test_a_silent_node_is_reported_and_done_the_next_time() -> None:
    """What was reachable is gone; the rest is named."""
    cluster = serving()
    cluster.node("spark-2").answer = Answer.SILENT
    assert "spark-2" in destroyed(cluster).unknown
    cluster.node("spark-2").answer = Answer.WHOLE
    destroyed(cluster)
    assert ours_left(cluster) == []


def test_destroying_nothing_writes_nothing() -> None:
    """Also the second time: not even a lease comes back."""
    cluster = serving()
    destroyed(cluster)
    writes = len(cluster.world.writes)
    assert destroyed(cluster).removed == {}
    assert len(cluster.world.writes) == writes
    assert ours_left(cluster) == []


def test_apply_after_destroy_serves_again() -> None:
    """From nothing, with the weights that stayed."""
    cluster = serving()
    before = cluster.shape()
    destroyed(cluster)
    cluster.apply()
    assert cluster.shape() == before


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("fault", list(Fault))
def test_an_interrupted_destroy_is_finished_by_the_next(fault: Fault, weights: bool) -> None:
    """Before and after every write, and with the reply lost."""
    undisturbed = serving()
    first = undisturbed.world.attempts
    destroyed(undisturbed, weights=weights)
    count = undisturbed.world.attempts - first
    assert count > 15
    for number in range(count):
        cluster = serving()
        cluster.world.faults[cluster.world.attempts + number] = fault
        with suppress(SimulatedCrash, SparkopError):
            destroyed(cluster, weights=weights)
        cluster.world.revive()
        destroyed(cluster, weights=weights)
        assert ours_left(cluster) == [], number
        assert any(node.checkpoint for node in cluster.world.nodes.values()) != weights, number


@pytest.mark.parametrize("stopped", [False, True])
def test_status_tells_of_a_destroy_that_was_cut_short(stopped: bool) -> None:
    """It was told as a stop that somebody had wished, with exit code 0: nobody went on with it. A stop leaves
    marks, too, and is as wished."""
    words = set()
    for number in range(4, 20, 3):
        cluster = serving()
        if stopped:
            cluster.stop()
            assert status_of(cluster.observe(), cluster.plan(), SIMULATED).as_wished
        cluster.world.faults[cluster.world.attempts + number] = Fault.AFTER
        with suppress(SimulatedCrash):
            destroyed(cluster)
        cluster.world.revive()
        found = status_of(cluster.observe(), cluster.plan(), SIMULATED)
        assert found.destroy_begun == found.stopped_by_human, number
        assert not found.as_wished, number
        words |= {f"{found.endpoint_detail}; {found.endpoint_remedy}"} if found.state == "stopped" else set()
        cluster.apply()
        assert not status_of(cluster.observe(), cluster.plan(), SIMULATED).destroy_begun
    assert [each.partition(", ")[2] for each in words] == [
        "whose sparkop destroy was begun and has not ended; sparkop destroy again ends it; "
        "sparkop apply starts it again"
    ]


def test_another_clusters_folder_stays() -> None:
    """It has another cluster's key and history, whatever this spec says."""
    cluster = Cluster.make()
    node = cluster.node("spark-2")
    path = node.path("cluster.json", "~/.sparkop/test")
    node.files[path] = (b'{"version": 1, "cluster": "other"}', 0o644)
    destroyed(cluster)
    assert path in node.files
    assert any("that of other" in event.text for event in cluster.events)


def test_images_that_another_cluster_has_pulled_stay() -> None:
    """A spec that names another cluster's folder took its images for its own."""
    cluster = serving()
    cluster.stop()
    images = {name: dict(node.images) for name, node in cluster.world.nodes.items()}
    writes = len(cluster.world.writes)
    cluster.spec = spec_of(name="other", stateDirectory="~/.sparkop/test")
    assert destroyed(cluster) == Destroyed()
    assert {name: node.images for name, node in cluster.world.nodes.items()} == images
    assert len(cluster.world.writes) == writes


def built(**build: str) -> Cluster:
    """Serves by an image that every node has built."""
    made = {"context": "sglang-sm121", "base": IMAGE, "tag": "made/here:local", **build}
    cluster = Cluster.make(spec_of(image={"reference": None, "build": made}))
    cluster.world.registry[IMAGE] = SimulatedImage("sha256:ba5e", (IMAGE,))
    cluster.apply()
    return cluster


def test_an_image_that_a_newer_build_has_replaced_goes_too(tmp_path: Path) -> None:
    """It stayed, 15 GB and without a name. Another cluster's stays, and so does one that somebody uses."""
    cluster = built()
    first = {name: node.images["made/here:local"] for name, node in cluster.world.nodes.items()}
    (tmp_path / "Dockerfile").write_text("FROM ${BASE}\n")
    build = cluster.spec.image.build
    assert build is not None
    image = cluster.spec.image.model_copy(
        update={"build": build.model_copy(update={"context": str(tmp_path)})}
    )
    cluster.spec = cluster.spec.model_copy(update={"image": image})
    cluster.apply()
    node = cluster.node("spark-1")
    assert first["spark-1"].id in node.images, "replaced, and without a name"
    others = SimulatedImage("sha256:others", labels={**first["spark-1"].labels, BUILT_FOR: "other"})
    unmarked = SimulatedImage("sha256:unmarked", labels={BUILD: "v1:by an older sparkop"})
    node.images |= {others.id: others, unmarked.id: unmarked}
    CHANGES["containers"](cluster.node("spark-2"), {"by-hand": {}})
    cluster.node("spark-2").containers["by-hand"].image_id = first["spark-2"].id
    result = destroyed(cluster)
    assert set(node.images) == {others.id, unmarked.id}
    assert set(cluster.node("spark-2").images) == {first["spark-2"].id}
    shown = first["spark-2"].id[:19]
    kept = f"kept: image {shown}, of which container by-hand is made; sparkop destroy again once that is gone"
    assert kept in [event.text for event in cluster.events]
    assert any(f"image {first['spark-1'].id[:19]}" in name for name in result.removed["spark-1"])
    assert destroyed(cluster).removed == {}


def test_an_image_that_was_pulled_and_that_somebody_uses_stays_until_a_later_destroy() -> None:
    """Docker refuses to remove it: the destroy ended there, with the state folder left. Later it was
    forgotten with that folder: the next destroy had nothing to do, and the image stayed for ever."""
    cluster = serving()
    node = cluster.node("spark-2")
    CHANGES["containers"](node, {"by-hand": {}})
    node.containers["by-hand"].image_id = node.images[IMAGE].id
    result = destroyed(cluster)
    assert result.kept == {"spark-2": (f"image {IMAGE}, of which container by-hand is made",)}
    removed = result.removed
    assert removed["spark-1"][-1] == "state folder"
    assert removed["spark-2"][-1] == (
        "sparkop's files in /home/spark/.sparkop/test but for history.json, "
        "by which a later destroy finds the images that are kept"
    ), "the folder is there still"
    assert list(node.images) == [IMAGE]
    ledger = node.path("history.json", "~/.sparkop/test")
    assert [path for path in node.files if ".sparkop" in path] == [ledger], "what is left, and no more"
    assert [entry["event"] for entry in json.loads(node.files[ledger][0])["entries"]] == ["pulled"]
    told = [event.text for event in cluster.events if "of which container by-hand is made" in event.text]
    assert [text.endswith("; sparkop destroy again once that is gone") for text in told] == [True]
    writes = len(cluster.world.writes)
    assert destroyed(cluster).removed == {}, "still in use"
    assert [event.text for event in cluster.events if "of which container" in event.text] == [*told, *told]
    assert len(cluster.world.writes) == writes
    del node.containers["by-hand"]
    assert any("image" in what for what in destroyed(cluster).removed["spark-2"])
    assert ours_left(cluster) == []


def test_an_image_that_a_destroy_has_left_goes_after_an_apply_too() -> None:
    """It was there already: nobody would write down once more that sparkop had pulled it."""
    cluster = serving()
    node = cluster.node("spark-2")
    CHANGES["containers"](node, {"by-hand": {}})
    node.containers["by-hand"].image_id = node.images[IMAGE].id
    destroyed(cluster)
    cluster.apply()
    del node.containers["by-hand"]
    destroyed(cluster)
    assert ours_left(cluster) == []


def test_images_of_specs_before_go_too() -> None:
    """Only those that the present spec names were looked at; 24 GiB of each older one stayed for ever."""
    cluster = serving()
    other = f"registry.example/engine@sha256:{'7' * 64}"
    cluster.world.registry[other] = SimulatedImage("sha256:" + "8" * 64, (other,))
    cluster.spec = spec_of(image={"reference": other})
    cluster.apply()
    assert all(len(node.images) == 2 for node in cluster.world.nodes.values())
    destroyed(cluster)
    assert ours_left(cluster) == []


def test_images_of_a_damaged_history_stay_and_that_is_told() -> None:
    cluster = serving()
    node = cluster.node("spark-2")
    node.files[node.path("history.json", "~/.sparkop/test")] = (b"[", 0o600)
    destroyed(cluster)
    assert list(node.images) == [IMAGE]
    assert any("so they stay" in event.text for event in cluster.events)


def test_images_of_a_history_that_was_damaged_once_stay_and_that_is_told() -> None:
    """The next apply had begun it anew, and destroy said nothing of what it no longer knew."""
    cluster = serving()
    node = cluster.node("spark-2")
    node.files[node.path("history.json", "~/.sparkop/test")] = (b"[", 0o600)
    cluster.apply()
    destroyed(cluster)
    assert list(node.images) == [IMAGE]
    assert any("was damaged once" in event.text and "so they stay" in event.text for event in cluster.events)


def test_a_node_whose_docker_does_not_answer_keeps_its_state() -> None:
    """Its ranks may still run: they need the key, and a later destroy the history."""
    cluster = serving()
    cluster.node("spark-2").docker_up = False
    result = destroyed(cluster)
    assert set(result.unknown) == {"spark-2"}
    assert not any(".sparkop" in path for path in cluster.node("spark-1").files)
    node = cluster.node("spark-2")
    assert node.path("cluster.json", "~/.sparkop/test") in node.files
    node.docker_up = True
    destroyed(cluster)
    assert ours_left(cluster) == []
