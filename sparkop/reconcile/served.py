"""A cluster's API for smoke and bench: its key, what it offers, how long its context is."""

from __future__ import annotations

from typing import Any

from sparkop.engines.common import extra_arguments, has_key
from sparkop.engines.paths import key_path
from sparkop.engines.render import engine_of
from sparkop.engines.words import flags_in, values_of
from sparkop.errors import BlockedError
from sparkop.hosts.base import ReadableHost
from sparkop.reconcile.checkpoint import checkpoint_directory
from sparkop.records import dataclass
from sparkop.serving.api import Api
from sparkop.serving.smoke import Offer
from sparkop.serving.stream import error_of, parse
from sparkop.spec.engines import VllmEngine
from sparkop.spec.models import ClusterSpec

VISION_KEYS = ("vision_config", "vision_encoder", "vision_tower", "mm_vision_tower", "image_token_id")
"""Parts of a config.json that only models with pictures have."""


@dataclass(frozen=True)
class Served:
    """The API and what is known of its model. ``config``: its config.json; empty when it can't be read."""

    api: Api
    offer: Offer
    context: int | None
    """Tokens of prompt and answer together, by the engine's own word, else the spec's."""
    vocabulary: int | None
    config: dict[str, Any]


def reach_api(spec: ClusterSpec, head: ReadableHost) -> Served:
    """Look whether the API is there. Raises BlockedError when it is not; UnreachableError for the node."""
    api = Api(head, spec.api.port, spec.api.served_names[0], _key(spec, head), address=spec.api.own_address)
    config = _config(spec, head)
    context = _context(api) or spec.engine.context
    text = config.get("text_config") if isinstance(config.get("text_config"), dict) else config
    vocabulary = (text or {}).get("vocab_size")
    return Served(
        api, offer_of(spec, config), context, vocabulary if isinstance(vocabulary, int) else None, config
    )


def offer_of(spec: ClusterSpec, config: dict[str, Any]) -> Offer:
    """What spec and model promise. Parsers count wherever they are given, in ``engine.extraArgs`` too."""
    parsers = spec.engine.parsers
    tools, reasoning = parsers.tools, parsers.reasoning
    aliases = engine_of(spec).aliases
    extra = extra_arguments(spec, rank=0)
    tools = tools or next(iter(values_of("--tool-call-parser", extra, aliases)), None)
    reasoning = reasoning or next(iter(values_of("--reasoning-parser", extra, aliases)), None)
    if isinstance(spec.engine, VllmEngine) and not spec.engine.parsers.auto_tool_choice:
        chosen = "--enable-auto-tool-choice" in flags_in(extra, aliases)
        tools = tools if chosen else None
    return Offer(tools=bool(tools), reasoning=bool(reasoning), vision=_vision(spec, config))


def _vision(spec: ClusterSpec, config: dict[str, Any]) -> bool | None:
    if isinstance(spec.engine, VllmEngine) and "image" in spec.engine.prompt_limits:
        return spec.engine.prompt_limits["image"] > 0
    return any(key in config for key in VISION_KEYS) if config else None


def _key(spec: ClusterSpec, head: ReadableHost) -> str | None:
    if not has_key(spec):
        return None
    try:
        content = head.read_file(key_path(spec))
    except PermissionError as error:
        raise BlockedError("the API key can't be read", node=head.name, cause=str(error)) from error
    if not content:
        raise BlockedError(
            f"there is no API key in {key_path(spec)}",
            node=head.name,
            remedy="sparkop apply makes it and starts the model",
        )
    return content.decode("ascii", "replace").strip()


def _config(spec: ClusterSpec, head: ReadableHost) -> dict[str, Any]:
    try:
        content = head.read_file(f"{checkpoint_directory(spec, spec.head, head)}/config.json")
    except OSError:
        return {}
    config = parse(content or b"{}")
    return config if isinstance(config, dict) else {}


def _context(api: Api) -> int | None:
    """By ``/v1/models``, which proves on the way that the API is up and takes the key."""
    try:
        status, body = api.get("/v1/models")
    except OSError as error:
        raise BlockedError(
            f"nothing answers on port {api.port}",
            node=api.host.name,
            cause=str(error),
            remedy="sparkop status tells what runs; sparkop apply starts the model",
        ) from error
    document = parse(body)
    if status != 200:
        raise BlockedError(
            f"the API answers HTTP {status}",
            node=api.host.name,
            cause=error_of(document),
            remedy="the ranks run with another key than the key file has: sparkop status"
            if status in (401, 403)
            else "sparkop status",
        )
    models = document.get("data") if isinstance(document, dict) else None
    for model in models if isinstance(models, list) else []:
        if isinstance(model, dict) and model.get("id") == api.model:
            length = model.get("max_model_len")
            return length if isinstance(length, int) else None
    return None
