"""Pi's files, as they are and as they should be. Pure: texts in, texts out.

What Pi reads was found by running 0.74.2 and 1.6.0: models.json allows ``//`` comments and trailing commas,
and any error in it drops every custom provider; settings.json is strict JSON, an error drops all of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from importlib.resources import files
from typing import Any

from sparkop.clients.jsonc import BrokenTextError, Document
from sparkop.clients.profile import NO_KEY, Profile

MODELS = "models.json"
SETTINGS = "settings.json"
LEVELS = ("minimal", "low", "medium", "high", "xhigh", "max")

Texts = Mapping[str, str | None]
"""File name below the agent folder -> its text; None: not there."""


def extension_name(provider: str) -> str:
    """Pi loads every .js below extensions/ by itself."""
    return f"extensions/sparkop-{provider}.js"


def names(provider: str) -> tuple[str, str, str]:
    """The files that are ours to change, in the order in which they are written."""
    return extension_name(provider), MODELS, SETTINGS


def desired(profile: Profile, current: Texts) -> dict[str, str | None]:
    """The three files. Raises BrokenTextError, with the file's name first, for one that Pi can't read."""
    extension = extension_name(profile.provider)
    return {
        extension: extension_text(profile) if profile.remove_cap else None,
        MODELS: _named(MODELS, lambda: _models(profile, current[MODELS])),
        SETTINGS: _named(SETTINGS, lambda: _settings(profile, current[SETTINGS])),
    }


def without_ours(provider: str, model: str, current: Texts, base: Texts) -> dict[str, str | None]:
    """The files without what is ours, where others have changed them since: only our parts become as they
    were in ``base``, the files before sparkop. An extension that is not as we wrote it stays."""
    return {
        extension_name(provider): current[extension_name(provider)],
        MODELS: _named(MODELS, lambda: _models_undone(provider, current[MODELS], base[MODELS])),
        SETTINGS: _named(
            SETTINGS, lambda: _settings_undone(provider, model, current[SETTINGS], base[SETTINGS])
        ),
    }


def differences(profile: Profile, current: Texts) -> list[tuple[str, str, str]]:
    """What is not as desired: field, observed, desired; in words for people."""
    wanted = desired(profile, current)
    found: list[tuple[str, str, str]] = []
    models = current[MODELS]
    before = Document(models, comments=True).read("providers", profile.provider) if models else None
    entry, what = provider_entry(profile), f"provider {profile.provider}"
    if before is None:
        found.append((what, "absent", "present"))
    elif before != entry:
        known = before if isinstance(before, dict) else {}
        keys = [key for key in {**entry, **known} if known.get(key) != entry.get(key)]
        found.append((what, f"another {', '.join(keys) or 'value'}", "as in the spec"))
    if wanted[SETTINGS] != current[SETTINGS]:
        found.append((SETTINGS, "without the model", f"{profile.provider}/{profile.model}"))
    extension = extension_name(profile.provider)
    if wanted[extension] != current[extension]:
        absent = current[extension] is None
        goal = "absent" if wanted[extension] is None else "as in the spec"
        found.append(("extension", "absent" if absent else "another", goal))
    return found


def provider_entry(profile: Profile) -> dict[str, Any]:
    """Our provider in models.json. Every difference between servers is said, none is left to Pi's guess by
    the URL. ``!command`` is the one form of a key reference that every version resolves and that fails,
    instead of falling back to another provider, when there is no key."""
    model: dict[str, Any] = {
        "id": profile.model,
        "name": profile.title,
        "reasoning": profile.reasoning,
        "input": list(profile.input),
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
    }
    if profile.context is not None:
        model["contextWindow"] = profile.context
    if profile.max_output is not None:
        model["maxTokens"] = profile.max_output
    if profile.reasoning and profile.efforts:
        model["thinkingLevelMap"] = _levels(profile)
    return {
        "name": f"{profile.title} ({profile.provider})",
        "baseUrl": profile.base_url,
        "api": "openai-completions",
        "apiKey": f"!{profile.key.command}" if profile.key else NO_KEY,
        "compat": {
            "supportsStore": False,
            "supportsDeveloperRole": False,
            "supportsReasoningEffort": bool(profile.reasoning and profile.efforts),
            "supportsUsageInStreaming": True,
            "maxTokensField": "max_tokens",
            "thinkingFormat": "openai",
        },
        "models": [model],
    }


def extension_text(profile: Profile) -> str:
    """The program that takes the limit out of requests."""
    settings = {"provider": profile.provider, "baseUrl": profile.base_url, "model": profile.model}
    text = files("sparkop.clients").joinpath("pi_extension.js").read_text(encoding="utf-8")
    return text.replace('"@SETTINGS@"', json.dumps(settings))


def _levels(profile: Profile) -> dict[str, str | None]:
    """Levels that the spec does not name are hidden, so that Pi sends none that the server does not know."""
    levels: dict[str, str | None] = {"off": profile.efforts["off"]} if "off" in profile.efforts else {}
    return levels | {level: profile.efforts.get(level) for level in LEVELS}  # type: ignore[call-overload]


def _models(profile: Profile, text: str | None) -> str:
    entry = provider_entry(profile)
    if text is None or not text.strip("\ufeff \t\r\n"):
        return json.dumps({"providers": {profile.provider: entry}}, indent=2, ensure_ascii=False) + "\n"
    document = _models_document(text)
    if document.read("providers", profile.provider) == entry:
        return text
    return document.with_value(("providers", profile.provider), entry)


def _models_document(text: str) -> Document:
    document = Document(text, comments=True)
    if document.root.kind != "object":
        raise BrokenTextError("it is no object")
    providers = document.at("providers")
    if providers is not None and providers.kind != "object":
        raise BrokenTextError("providers is no object")
    return document


def _models_undone(provider: str, text: str | None, base: str | None) -> str | None:
    if text is None:
        return None
    before = Document(base, comments=True).source("providers", provider) if base and base.strip() else None
    document = _models_document(text)
    if before is not None:
        return document.with_source(("providers", provider), before)
    undone = document.without(("providers", provider))
    left = Document(undone, comments=True)
    if base is None and left.value in ({}, {"providers": {}}) and "//" not in undone:
        return None
    return undone


def _settings(profile: Profile, text: str | None) -> str | None:
    full = f"{profile.provider}/{profile.model}"
    wanted = {"defaultProvider": profile.provider, "defaultModel": profile.model}
    if text is None or not text.strip():
        return json.dumps(wanted, indent=2, ensure_ascii=False) + "\n" if profile.make_default else text
    document = _settings_document(text)
    enabled = document.read("enabledModels")
    if enabled and not any(isinstance(item, str) and _selects(item, full) for item in enabled):
        text = document.with_item(("enabledModels",), full)
    for key, value in wanted.items() if profile.make_default else ():
        document = _settings_document(text)
        if document.read(key) != value:
            text = document.with_value((key,), value)
    return text


def _settings_document(text: str) -> Document:
    document = Document(text, comments=False)
    if document.root.kind != "object":
        raise BrokenTextError("it is no object")
    enabled = document.at("enabledModels")
    if enabled is not None and enabled.kind != "array" and document.read("enabledModels") is not None:
        raise BrokenTextError("enabledModels is no list")
    return document


def _selects(pattern: str, full: str) -> bool:
    """Whether an entry of enabledModels stands for the model; it may be a pattern or end in ``:level``."""
    level = pattern.rpartition(":")
    candidates = [pattern, level[0]] if level[2] in ("off", *LEVELS) else [pattern]
    return any(_glob(full.lower(), candidate.lower()) for candidate in candidates)


def _glob(text: str, pattern: str) -> bool:
    """As Pi matches: a star stays between two slashes."""
    parts, patterns = text.split("/"), pattern.split("/")
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))


def _settings_undone(provider: str, model: str, text: str | None, base: str | None) -> str | None:
    if text is None or not text.strip():
        return text
    full = f"{provider}/{model}"
    old = Document(base, comments=False) if base and base.strip() else Document("{}", comments=False)
    document = _settings_document(text)
    if full in (document.read("enabledModels") or ()) and full not in (old.read("enabledModels") or ()):
        document = Document(document.without_item(("enabledModels",), full), comments=False)
    ours = document.read("defaultProvider") == provider and document.read("defaultModel") == model
    for key in ("defaultProvider", "defaultModel") if ours else ():
        source = old.source(key)
        undone = document.with_source((key,), source) if source else document.without((key,))
        document = Document(undone, comments=False)
    return None if base is None and document.value == {} else document.text


def _named(name: str, make: Any) -> Any:
    try:
        return make()
    except BrokenTextError as error:
        raise BrokenTextError(f"{name}: {error}") from None
