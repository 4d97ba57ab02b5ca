"""Real vLLM, tensor parallel over two lab hosts: what the README's first command shows."""

from __future__ import annotations

import json

import pytest

from tests.scenarios.conftest import VLLM, User

pytestmark = [pytest.mark.lab, pytest.mark.vllm]

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def ask(user: User, question: str, **more: object) -> dict[str, object]:
    """As any OpenAI client would; the key goes from file to header."""
    body = {
        "model": "tiny-chat",
        "messages": [{"role": "user", "content": question}],
        "temperature": 0,
        **more,
    }
    script = (
        "ssh spark-1 'printf \"Authorization: Bearer \"; cat .sparkop/lab/api_key' | "
        "curl -sS --fail-with-body -H @- -H 'Content-Type: application/json' "
        f"http://spark-1:8000/v1/chat/completions -d '{json.dumps(body)}'"
    )
    ran = user.sparkop("lab", "run", "--", "sh", "-c", script, check=0)
    message: dict[str, object] = ran.json["choices"][0]["message"]
    return message


def test_a_model_is_served_over_two_hosts_and_answers(user: User) -> None:
    user.sparkop("apply", VLLM, check=0, timeout=400)
    assert "391" in str(ask(user, "What is 17 * 23?")["content"])
    assert str(ask(user, "Hello")["content"]).strip()
    calls = ask(user, "What is the weather in Paris?", tools=[WEATHER])["tool_calls"]
    assert isinstance(calls, list)
    assert calls[0]["function"]["name"] == "get_weather"
    assert json.loads(calls[0]["function"]["arguments"]) == {"city": "Paris"}

    assert "nothing to do" in user.sparkop("apply", VLLM, check=0).err
    user.sparkop("diff", check=0)

    user.sparkop("lab", "break", "kill-rank", "spark-2", check=0)
    broken = user.sparkop("diff", VLLM, "-o", "json", check=2).json
    assert any(o["resource"] == "rank/1" and o["action"] == "start" for o in broken["operations"])
    user.sparkop("apply", VLLM, check=0, timeout=400)
    assert "391" in str(ask(user, "What is 17 * 23?")["content"])
