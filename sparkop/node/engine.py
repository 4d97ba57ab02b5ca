"""What is observed of a node's Docker engine: its settings, our containers, the images asked for.

Stdlib-only, Python 3.8 or newer.
"""

from __future__ import annotations

import json
import os

from . import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    Json = Any


def read(request: dict[str, Any], timeout: float, errors: dict[str, str]) -> dict[str, Any]:
    """The document's ``docker``. Parts that fail go to ``errors`` as ``docker:part``.

    Raises OSError when there is no engine, or none that answers. The engine's settings are read only when
    ``engine`` asks for them: for those the engine starts programs, which takes longer than all the rest.
    """
    engine = wire.Engine(timeout=timeout)
    listed = engine.json("GET", "/containers/json?all=1")
    labels, names = request.get("labels") or (), set(request.get("containers") or ())
    found = {
        "version": engine.version,
        "api_version": engine.api_version,
        "containers": containers(engine, listed, labels, names, errors),
        "images": images(engine, [*(request.get("images") or ()), *pulled(request)], errors),
    }
    if request.get("unnamed"):
        found["unnamed"] = unnamed(engine, request["unnamed"], errors)
        found["in_use"] = {entry.get("ImageID"): name_of(entry) for entry in listed}
    if request.get("engine"):
        try:
            found.update(settings(engine.json("GET", "/info")))
        except (OSError, ValueError, wire.EngineError) as error:
            errors["docker:engine"] = wire.describe(error)
    return found


def containers(
    engine: wire.Engine, listed: Json, labels: Any, names: set[str], errors: dict[str, str]
) -> list[Json]:
    """Containers that carry any of the labels or have one of the names."""
    ours = []
    for entry in listed:
        carried = entry.get("Labels") or {}
        called = {name.lstrip("/") for name in entry.get("Names") or ()}
        if called & names or any(carries(carried, label) for label in labels):
            ours.append((entry["Id"], "/containers/%s/json" % entry["Id"]))
    return [container(answer) for _, answer in ask(engine, ours, errors) if answer is not None]


def images(engine: wire.Engine, references: Any, errors: dict[str, str]) -> dict[str, Json]:
    """By reference; None for an image that is not here, neither by it nor as it comes from another node."""
    questions = [(reference, "/images/%s/json" % reference) for reference in references]
    found = {reference: image(answer) for reference, answer in ask(engine, questions, errors)}
    names = [(r, wire.standin(r)) for r, present in found.items() if present is None]
    brought = [(reference, "/images/%s/json" % name) for reference, name in names if name]
    return {**found, **{reference: image(answer) for reference, answer in ask(engine, brought, errors)}}


def pulled(request: dict[str, Any]) -> list[str]:
    """Images that the history of the state folder says we have pulled, for whichever spec. A damaged one
    names none: that it is damaged is told by the section ``state``."""
    if not request.get("pulled"):
        return []
    path = os.path.join(os.path.expanduser(request["state"]), "history.json")
    try:
        entries = json.loads(wire.read_text(path))["entries"]
        ours = [each for each in entries if isinstance(each, dict) and each.get("event") == "pulled"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [str(each["reference"]) for each in ours if each.get("reference")]


def name_of(entry: dict[str, Any]) -> str:
    """Of a container in a list."""
    return next((str(name).lstrip("/") for name in entry.get("Names") or ()), str(entry["Id"])[:12])


def unnamed(engine: wire.Engine, label: str, errors: dict[str, str]) -> list[Json]:
    """Images with a label that have no name any more, or never had one."""
    from urllib.parse import quote  # only destroy asks: the probe of every tick goes without

    filters = quote(json.dumps({"label": [label], "dangling": ["true"]}))
    try:
        answers = engine.json("GET", "/images/json?filters=%s" % filters)
    except (OSError, ValueError, wire.EngineError) as error:
        errors["docker:unnamed"] = wire.describe(error)
        return []
    return [listed_image(answer) for answer in answers]


def ask(
    engine: wire.Engine, questions: list[tuple[str, str]], errors: dict[str, str]
) -> Iterator[tuple[str, Json]]:
    """GETs by name; None for what does not exist. One that fails is an error of its own."""
    for name, path in questions:
        try:
            yield name, engine.json("GET", path)
        except wire.EngineError as error:
            if error.status == 404:
                yield name, None
            else:
                errors["docker:%s" % name] = wire.describe(error)


def carries(labels: dict[str, str], wanted: str) -> bool:
    """Whether there is a label ``key``, or ``key=value``."""
    key, equals, value = wanted.partition("=")
    return key in labels and (not equals or labels[key] == value)


def container(answer: dict[str, Any]) -> dict[str, Any]:
    """A container, as inspected. Environment and arguments stay out: they can hold secrets."""
    state, config = answer.get("State") or {}, answer.get("Config") or {}
    host = answer.get("HostConfig") or {}
    status = str(state.get("Status"))
    ended = status in ("exited", "dead")
    return {
        "id": answer["Id"],
        "name": answer["Name"].lstrip("/"),
        "image": config.get("Image") or "",
        "image_id": answer.get("Image") or "",
        "labels": config.get("Labels") or {},
        "state": status,
        "exit_code": state.get("ExitCode") if ended else None,
        "oom_killed": bool(state.get("OOMKilled")),
        "started_at": moment(state.get("StartedAt")),
        "finished_at": moment(state.get("FinishedAt")),
        "restart_policy": (host.get("RestartPolicy") or {}).get("Name") or "no",
        "error": state.get("Error") or None,
        "pid": state.get("Pid") or None,
        "halted": status == "running" and halted(state.get("Pid")),
    }


def halted(pid: int | None) -> bool:
    """A signal or a debugger has stopped the process: Docker calls it running all the same."""
    fields = wire.process_fields(pid) if pid else []
    return bool(fields) and fields[0] in wire.HALTED


def moment(text: str | None) -> str | None:
    """Docker writes year 1 for never."""
    return None if not text or text.startswith("0001-") else text


def image(answer: Json) -> dict[str, Any] | None:
    """An image, as inspected; None when there is none."""
    if answer is None:
        return None
    return {
        "id": answer["Id"],
        "digests": answer.get("RepoDigests") or [],
        "labels": (answer.get("Config") or {}).get("Labels") or {},
        "size": answer.get("Size") or 0,
    }


def listed_image(answer: dict[str, Any]) -> dict[str, Any]:
    """An image as a list has it."""
    return {"id": answer["Id"], "labels": answer.get("Labels") or {}, "size": answer.get("Size") or 0}


def settings(info: dict[str, Any]) -> dict[str, Any]:
    """Of the engine itself, by ``docker info``."""
    status = [" ".join(map(str, pair)) for pair in info.get("DriverStatus") or ()]
    return {
        "root": info.get("DockerRootDir"),
        "driver": info.get("Driver"),
        "snapshotter": any("io.containerd.snapshotter" in line for line in status),
        "cgroup_version": info.get("CgroupVersion"),
        "runtimes": sorted(info.get("Runtimes") or ()),
        "default_runtime": info.get("DefaultRuntime"),
    }
