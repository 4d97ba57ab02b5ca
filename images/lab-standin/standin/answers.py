"""What the stand-in says: the answers of the lab's tiny model, found by looking at the last message."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from standin import pictures

GREETING = "Hello! I am a tiny test model. How can I help you?"
PRODUCT = "17 * 23 = 391"
NO_TOOL = "I can not look up the weather without a tool for it."
TOOL_ANSWER = "The tool has answered: you can read the weather above."
FALLBACK = "I am a stand-in for a model. I can greet you, multiply 17 by 23 and ask a tool for the weather."
PROSE = (
    "There was once a small computer that stood on a desk beside another small computer. Each of them held "
    "one half of a model, and neither of them could say a word alone. "
)
TOKEN = re.compile(r"\s*\w{1,5}|\s*[^\w\s]|\s+")


class BadRequestError(Exception):
    """The request can't be answered; the text is for the client (status 400)."""


@dataclass(frozen=True)
class Answer:
    """A text, or one call of a tool with arguments as JSON text."""

    text: str = ""
    tool: str | None = None
    arguments: str = ""


def tokens(text: str) -> list[str]:
    """Pieces that joined give the text again."""
    return TOKEN.findall(text)


def text_of(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if part.get("type") == "text")
    return content if isinstance(content, str) else ""


def images_of(messages: list[dict[str, Any]]) -> list[str]:
    """URLs of all images in a conversation."""
    found = []
    for message in messages:
        content = message.get("content")
        for part in content if isinstance(content, list) else []:
            if part.get("type") == "image_url":
                found.append(str((part.get("image_url") or {}).get("url", "")))
    return found


def to_chat(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> Answer:
    """The answer to a conversation. Raises BadRequestError for an image that can't be read."""
    last = messages[-1]
    if last.get("role") == "tool":
        return Answer(TOOL_ANSWER)
    pictured = images_of([last])
    if pictured:
        try:
            left, right = pictures.halves(pictures.from_data_url(pictured[-1]))
        except pictures.PictureError as error:
            raise BadRequestError(f"Failed to load image: {error}") from error
        return Answer(f"The left half is {left} and the right half is {right}.")
    question = text_of(last)
    city = re.search(r"\bweather\b.*?\b(?:in|for|of)\s+((?:[A-Z][\w'-]*\s?)+)", question)
    if city:
        return weather(city[1].strip(), tools)
    return Answer(to_text(question))


def weather(city: str, tools: list[dict[str, Any]]) -> Answer:
    """A call of the first tool with "weather" in its name, the city in its first parameter."""
    for tool in tools:
        function = tool.get("function") or {}
        if "weather" in str(function.get("name", "")):
            properties = (function.get("parameters") or {}).get("properties") or {"city": {}}
            return Answer(tool=function["name"], arguments=json.dumps({next(iter(properties)): city}))
    return Answer(NO_TOOL)


def to_text(question: str) -> str:
    tail = question[-400:].lower()
    if re.search(r"\b17\s*(\*|x|×|times|multiplied by|by|and)\s*23\b", tail):
        return PRODUCT
    if re.search(
        r"\b(hello|hi|hey|greet\w*|good (morning|day|evening)|introduce yourself|who are you)\b", tail
    ):
        return GREETING
    if re.search(r"\b(story|prose|essay|paragraphs?|python|code|program)\b", tail):
        return PROSE * 8
    return FALLBACK


def stretched(pieces: list[str], least: int, most: int, ignore_end: bool) -> tuple[list[str], str]:
    """The tokens that are sent and the finish reason: repeated up to `least` (or `most`), cut at `most`."""
    wanted = most if ignore_end else min(least, most)
    if len(pieces) < wanted:
        pieces = (pieces * (wanted // len(pieces) + 1))[:wanted]
    if ignore_end or len(pieces) > most:
        return pieces[:most], "length"
    return pieces, "stop"
