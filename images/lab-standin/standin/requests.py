"""From the body of a request to what is generated, and from pieces to OpenAI's answers."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from standin import answers
from standin.answers import Answer, BadRequestError
from standin.engine import TOKEN_ZERO

TEMPLATE_TOKENS = 4
"""Tokens that a chat template adds for each message."""
DEFAULT_COMPLETION_TOKENS = 16
THOUGHT = "The last message decides what to say. "


@dataclass(frozen=True)
class Limits:
    """What the server's flags say about requests."""

    context: int
    truncate: bool
    images: int | None
    tool_parser: bool
    reasoning_field: str | None
    thinking: bool
    """Whether a request thinks that does not say."""


@dataclass(frozen=True)
class Job:
    """One request, ready to run. `thought` comes before `pieces`; a tool call has pieces of its arguments."""

    chat: bool
    model: str
    prompt: int
    thought: list[str]
    pieces: list[str]
    tool: str | None
    reason: str
    stream: bool
    include_usage: bool
    identity: str

    @property
    def all_pieces(self) -> list[str]:
        return self.thought + self.pieces


def prompt_tokens(body: dict[str, Any], chat: bool) -> int:
    """Length of the prompt: exact for token ids, else about what a tokenizer would make."""
    if chat:
        texts = [answers.text_of(message) for message in body["messages"]]
        extra = str(body.get("tools") or "")
        return sum(len(answers.tokens(text)) + TEMPLATE_TOKENS for text in texts) + len(answers.tokens(extra))
    prompt = body["prompt"]
    if isinstance(prompt, list) and all(isinstance(token, int) for token in prompt):
        return len(prompt)
    texts = prompt if isinstance(prompt, list) else [prompt]
    return sum(len(text) if isinstance(text, list) else len(answers.tokens(str(text))) for text in texts)


def read(body: dict[str, Any], chat: bool, limits: Limits, *, degenerate: bool, force_usage: bool) -> Job:
    """Check a request and decide its whole answer. Raises BadRequestError."""
    check(body, chat, limits)
    prompt = prompt_tokens(body, chat)
    asked = body.get("max_completion_tokens") or body.get("max_tokens")
    if asked is not None and (not isinstance(asked, int) or asked < 1):
        raise BadRequestError("max_tokens must be at least 1")
    room = limits.context - prompt
    if room < 1 or (asked is not None and asked > room and not limits.truncate):
        if not limits.truncate:
            wanted = prompt + (asked or 1)
            raise BadRequestError(
                f"This model's maximum context length is {limits.context} tokens. However, you requested "
                f"{wanted} tokens ({prompt} in the messages, {asked or 1} in the completion). "
                "Please reduce the length."
            )
        prompt = min(prompt, limits.context - 1)
        room = limits.context - prompt
    most = min(room, asked or (room if chat else DEFAULT_COMPLETION_TOKENS))
    answer = reply(body, chat)
    thought = answers.tokens(THOUGHT) if chat and limits.reasoning_field and thinks(body, limits) else []
    least = int(body.get("min_tokens") or 0)
    pieces, reason = answers.stretched(
        answers.tokens(answer.arguments if answer.tool else answer.text),
        least,
        most,
        bool(body.get("ignore_eos")),
    )
    if degenerate:
        thought, pieces, reason, answer = [], [TOKEN_ZERO] * min(most, 4096), "length", Answer()
    options = body.get("stream_options") or {}
    return Job(
        chat=chat,
        model=str(body.get("model") or ""),
        prompt=prompt,
        thought=thought,
        pieces=pieces,
        tool=answer.tool,
        reason="tool_calls" if answer.tool and reason == "stop" else reason,
        stream=bool(body.get("stream")),
        include_usage=bool(options.get("include_usage")) or force_usage,
        identity=("chatcmpl-" if chat else "cmpl-") + uuid.uuid4().hex,
    )


def check(body: dict[str, Any], chat: bool, limits: Limits) -> None:
    if chat:
        messages = body.get("messages")
        if (
            not isinstance(messages, list)
            or not messages
            or not all(isinstance(each, dict) for each in messages)
        ):
            raise BadRequestError("messages must be a list of at least one message")
        count = len(answers.images_of(messages))
        if limits.images is not None and count > limits.images:
            raise BadRequestError(f"At most {limits.images} image(s) may be provided in one prompt.")
        choice = body.get("tool_choice")
        if body.get("tools") and choice in (None, "auto") and not limits.tool_parser:
            raise BadRequestError(
                '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
            )
    elif not body.get("prompt"):
        raise BadRequestError("prompt is missing")


def reply(body: dict[str, Any], chat: bool) -> Answer:
    if not chat:
        prompt = body["prompt"]
        first = prompt[0] if isinstance(prompt, list) and prompt and isinstance(prompt[0], str) else prompt
        return Answer(answers.to_text(first if isinstance(first, str) else "story"))
    tools = body.get("tools") or []
    return answers.to_chat(body["messages"], [] if body.get("tool_choice") == "none" else tools)


def thinks(body: dict[str, Any], limits: Limits) -> bool:
    wanted = body.get("chat_template_kwargs") or {}
    effort = body.get("reasoning_effort")
    if effort is not None:
        return bool(effort != "none")
    return bool(wanted.get("enable_thinking", wanted.get("thinking", limits.thinking)))


def usage(job: Job, generated: int, *, details: bool) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "prompt_tokens": job.prompt, "completion_tokens": generated, "total_tokens": job.prompt + generated,
    }  # fmt: skip
    if details:
        figures["prompt_tokens_details"] = {"cached_tokens": 0}
    return figures


def envelope(job: Job, *, chunk: bool) -> dict[str, Any]:
    kind = ("chat.completion.chunk" if chunk else "chat.completion") if job.chat else "text_completion"
    return {"id": job.identity, "object": kind, "created": int(time.time()), "model": job.model}


def call_of(job: Job, arguments: str) -> dict[str, Any]:
    function = {"name": job.tool, "arguments": arguments}
    return {"id": "call_" + job.identity[-24:], "type": "function", "function": function}


def whole(job: Job, generated: Iterable[str], limits: Limits, *, details: bool) -> dict[str, Any]:
    """The answer in one piece, after all tokens have come."""
    pieces = list(generated)
    thought, text = "".join(pieces[: len(job.thought)]), "".join(pieces[len(job.thought) :])
    choice: dict[str, Any] = {"index": 0, "finish_reason": job.reason, "logprobs": None}
    if job.chat:
        message: dict[str, Any] = {
            "role": "assistant",
            "content": None if job.tool else text,
            "tool_calls": [],
        }
        if job.tool:
            message["tool_calls"] = [call_of(job, text)]
        if limits.reasoning_field:
            message[limits.reasoning_field] = thought or None
        choice["message"] = message
    else:
        choice["text"] = text
    return {
        **envelope(job, chunk=False),
        "choices": [choice],
        "usage": usage(job, len(pieces), details=details),
    }


def chunks(job: Job, generated: Iterable[str], limits: Limits, *, details: bool) -> Iterator[dict[str, Any]]:
    """The answer as a stream of chunks, one a token."""
    head = envelope(job, chunk=True)

    def chunk(part: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        body = {"delta": part} if job.chat else {"text": part.get("content", "")}
        return {**head, "choices": [{"index": 0, **body, "logprobs": None, "finish_reason": reason}]}

    count = 0
    for count, piece in enumerate(generated, start=1):
        if count == 1 and job.chat:
            yield chunk({"role": "assistant", "content": ""})
        if count <= len(job.thought):
            yield chunk({str(limits.reasoning_field): piece})
        elif job.tool:
            first = count == len(job.thought) + 1
            part = call_of(job, piece) if first else {"function": {"arguments": piece}}
            yield chunk({"tool_calls": [{"index": 0, **part}]})
        else:
            yield chunk({"content": piece})
    yield chunk({}, job.reason)
    if job.include_usage:
        yield {**head, "choices": [], "usage": usage(job, count, details=details)}
