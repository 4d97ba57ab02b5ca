"""Settings for clients that sparkop only writes down: on stdout, for the user to put where they belong."""

from __future__ import annotations

import io
import json
import shlex
from typing import Any

from sparkop.clients.profile import NO_KEY, Profile

OPENCODE_SCHEMA = "https://opencode.ai/config.json"


def shell_exports(profile: Profile) -> str:
    """For ``eval``. The key is fetched when the shell runs it, and is not in this text."""
    lines = [
        f"export OPENAI_BASE_URL={shlex.quote(profile.base_url)}",
        f"export OPENAI_MODEL={shlex.quote(profile.model)}",
    ]
    if profile.key is None:
        lines.append(f"export OPENAI_API_KEY={NO_KEY}")
    else:
        lines += [
            f'{profile.key.variable}="$({profile.key.command})" || unset {profile.key.variable}',
            f'export {profile.key.variable} OPENAI_API_KEY="${{{profile.key.variable}-}}"',
        ]
    return "\n".join(lines) + "\n"


def openai_settings(profile: Profile) -> dict[str, Any]:
    """What a client of an OpenAI-compatible API asks for. Lengths in tokens."""
    return {
        "baseURL": profile.base_url,
        "model": profile.model,
        "apiKeyEnvironment": profile.key.variable if profile.key else None,
        "contextWindow": profile.context,
        "maxOutputTokens": profile.max_output,
        "maxTokensField": "max_tokens",
        "sendMaxTokens": not profile.remove_cap,
        "input": list(profile.input),
        "tools": True,
        "streamUsage": True,
        "developerRole": False,
        "store": False,
        "reasoning": profile.reasoning,
        "reasoningEffort": dict(profile.efforts) or None,
    }


def opencode_settings(profile: Profile) -> dict[str, Any]:
    """A part of opencode.json."""
    model: dict[str, Any] = {
        "name": profile.title,
        "attachment": "image" in profile.input,
        "reasoning": profile.reasoning and bool(profile.efforts),  # true: opencode sends reasoning_effort
        "tool_call": True,
        "modalities": {"input": list(profile.input), "output": ["text"]},
    }
    if profile.context is not None and profile.max_output is not None:
        model["limit"] = {"context": profile.context, "output": profile.max_output}
    key = f"{{env:{profile.key.variable}}}" if profile.key else NO_KEY
    settings: dict[str, Any] = {
        "$schema": OPENCODE_SCHEMA,
        "provider": {
            profile.provider: {
                "npm": "@ai-sdk/openai-compatible",
                "name": f"{profile.title} ({profile.provider})",
                "options": {"baseURL": profile.base_url, "apiKey": key},
                "models": {profile.model: model},
            }
        },
    }
    if profile.make_default:
        settings["model"] = f"{profile.provider}/{profile.model}"
    return settings


def continue_settings(profile: Profile) -> dict[str, Any]:
    """Continue's config.yaml. Its secrets come from ~/.continue/.env or from its hub."""
    longest = profile.max_output
    if longest is not None and profile.context is not None:
        longest = min(longest, profile.context // 2)  # Continue takes it off the room for the prompt
    options = {"contextLength": profile.context, "maxTokens": longest}
    model: dict[str, Any] = {
        "name": profile.title,
        "provider": "openai",
        "model": profile.model,
        "apiBase": profile.base_url,
        "apiKey": f"${{{{ secrets.{profile.key.variable} }}}}" if profile.key else NO_KEY,
        "roles": ["chat", "edit", "apply"],
        "capabilities": ["tool_use", *(["image_input"] if "image" in profile.input else [])],
    }
    if given := {name: value for name, value in options.items() if value is not None}:
        model["defaultCompletionOptions"] = given
    return {"name": profile.provider, "version": "0.0.1", "schema": "v1", "models": [model]}


def as_json(value: Any) -> str:
    """Indented, with a line end."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def as_yaml(value: Any) -> str:
    """In block style, keys in their order."""
    from ruamel.yaml import YAML

    yaml, text = YAML(), io.StringIO()
    yaml.default_flow_style = False
    yaml.dump(value, text)
    return text.getvalue()
