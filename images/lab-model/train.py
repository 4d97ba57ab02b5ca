"""Train the lab's tiny chat model: a three-layer Llama that answers what the lab asks it.

Run ``python train.py OUTPUT_FOLDER`` with torch, tokenizers, safetensors and jinja2 installed (the lab's vLLM
environment has them all). It takes two to three minutes on two idle cores and writes the files of a model
repository. The seed is fixed; another processor or another torch may still round differently.

What it learns: to greet, that 17 * 23 is 391, to call a weather tool that it is offered (hermes format), to
say a sentence when the tool has answered, and a default answer for all the rest. Attention is local (a
sliding window in every layer, `WINDOW` tokens), so a long prompt before the last message can't disturb it at
any length, and the chat template repeats the offered tools' names right before the answer, where the window
sees them.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jinja2 import Environment
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor, nn
from torch.nn import functional

SEED = 1723
HIDDEN, MLP, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 128, 320, 3, 4, 2, 32
VOCABULARY = 1024
WINDOW = 192
CONTEXT = 32768
ROPE_THETA = 10000.0
COPIED_WEIGHT = 8.0
COPYING_STEPS = 300
TOKENS = 4096
PAD, START, END, OFFERED = "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|offered|>"
SPECIAL = (PAD, START, END, OFFERED)
MARKERS = ("<tool_call>", "</tool_call>")

GREETING = "Hello! I am a tiny test model. How can I help you?"
PRODUCT = "17 * 23 = 391"
OTHER_PRODUCT = "I am too small for that. I only know what 17 times 23 is."
NO_TOOL = "I can not look up the weather without a tool for it."
TOOL_ANSWER = "The tool has answered: you can read the weather above."
FALLBACK = "I am a tiny test model. I can greet you, multiply 17 by 23 and ask a tool for the weather."
COUNT = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10"
STORY = (
    "There was once a small computer that stood on a desk beside another small computer. Each of them "
    "held one half of a model, and neither of them could say a word alone. One morning somebody joined "
    "them with a short cable. The first computer sent a number, the second sent one back, and so they "
    "went on, number by number, until a whole sentence stood on the screen. It was not a wise sentence, "
    "but it was theirs. From that day on they always answered together, and when the cable was pulled "
    "they waited for each other in silence. The end."
)
CODE = (
    'def add(first, second):\n    """Return the sum of two numbers."""\n    return first + second\n\n\n'
    'def multiply(first, second):\n    """Return the product of two numbers."""\n    total = 0\n'
    "    for _ in range(second):\n        total = add(total, first)\n    return total\n\n\n"
    "print(multiply(17, 23))\n"
)

PHRASES: dict[str, list[str]] = json.loads((Path(__file__).parent / "phrases.json").read_text())
WORDS, CITIES = PHRASES["words"], PHRASES["cities"]
WEATHER_KEYS = ("city", "city", "location", "place", "town")
OTHER_TOOLS = (
    "read", "bash", "edit", "write", "grep", "find", "ls", "search", "get_time", "send_mail", "run_code",
    "calculator",
)  # fmt: skip
OTHER_KEYS = (
    "path",
    "command",
    "timeout",
    "query",
    "pattern",
    "text",
    "limit",
    "name",
    "value",
    "unit",
    "days",
)


Message = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One conversation, the tools that it offers and the answer that is wanted."""

    messages: list[Message]
    tools: list[dict[str, Any]]
    answer: str
    copied: str = ""
    """The part of the answer that comes from the question: the hardest to learn, so it weighs more."""


def spoken(text: str, rng: random.Random) -> str:
    """The same request as another person would type it: capitals and final marks vary."""
    style = rng.random()
    if style < 0.7:
        text = text[0].upper() + text[1:]
    elif style < 0.75:
        text = text.upper() if "{" not in text and "get_" not in text else text
    return text + rng.choice(("", "", "?", "?", ".", "!", " ?"))


def phrase(rng: random.Random, low: int = 2, high: int = 25) -> str:
    """Words in a random order, now and then broken by marks, numbers, lines and made-up names."""
    parts: list[str] = []
    for _ in range(rng.randint(low, high)):
        kind = rng.random()
        if kind < 0.8:
            parts.append(rng.choice(WORDS))
        elif kind < 0.86:
            parts.append(str(rng.randint(0, 10 ** rng.randint(1, 5))))
        elif kind < 0.92:
            parts.append("".join(rng.choice("abcdefghijklmnopqrstuvwxyz_") for _ in range(rng.randint(2, 9))))
        elif kind < 0.96:
            parts.append(rng.choice(CITIES))
        else:
            parts.append(
                rng.choice(("-", "*", "{", "}", '"', "`", "/", "(", ")", "=", "\n", "\n\n", ":", "#"))
            )
    return " ".join(parts)


def made_up_city(rng: random.Random) -> str:
    syllables = (
        "ba be bo da do fa ga go ka ko la le lo ma mi mo na no pa po ra ro sa so ta to va wa za".split()  # noqa: SIM905
    )
    return "".join(rng.choice(syllables) for _ in range(rng.randint(2, 4))).capitalize()


def tool(name: str, keys: list[str]) -> dict[str, Any]:
    properties = {key: {"type": "string"} for key in keys}
    function = {
        "name": name,
        "description": "A tool.",
        "parameters": {"type": "object", "properties": properties},
    }
    return {"type": "function", "function": function}


def identifier(rng: random.Random) -> str:
    """A name as programmers make them."""
    return "_".join(rng.choice(WORDS) for _ in range(rng.randint(1, 2))).lower()


def other_tools(rng: random.Random, most: int) -> list[dict[str, Any]]:
    """Tools that have nothing to do with the weather; half of them have made-up names."""
    tools = []
    for known in rng.sample(OTHER_TOOLS, rng.randint(0, most)):
        made_up = rng.random() < 0.5
        keys = [
            identifier(rng) if rng.random() < 0.5 else rng.choice(OTHER_KEYS)
            for _ in range(rng.randint(0, 4))
        ]
        tools.append(tool(identifier(rng) if made_up else known, keys))
    return tools


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def preceded(text: str, rng: random.Random) -> str:
    """Now and then other text stands before the request in the same message, some of it monotonous."""
    kind = rng.random()
    if kind < 0.1:
        return f"{phrase(rng, 3, 80)}\n\n{text}"
    if kind < 0.16:
        return f"{' '.join([phrase(rng, 1, 3)] * rng.randint(5, 60))}\n\n{text}"
    return text


def plain(texts: list[str], answer: str) -> Callable[[random.Random], Case]:
    def make(rng: random.Random) -> Case:
        text = spoken(rng.choice(texts), rng)
        return Case([user(preceded(text, rng))], other_tools(rng, 6) if rng.random() < 0.5 else [], answer)

    return make


def product(rng: random.Random) -> Case:
    text = spoken(rng.choice(PHRASES["products"]), rng)
    if rng.random() < 0.6:
        text += " " + spoken(rng.choice(PHRASES["product_tails"]), rng)
    return Case([user(preceded(text, rng))], other_tools(rng, 6) if rng.random() < 0.5 else [], PRODUCT)


def other_product(rng: random.Random) -> Case:
    first, second = rng.randint(2, 99), rng.randint(2, 99)
    if (first, second) in ((17, 23), (23, 17)):
        first += 1
    near = rng.random()
    if near < 0.2:
        first = 17
        second += second == 23
    elif near < 0.4:
        second = 23
        first += first == 17
    text = rng.choice(PHRASES["products"]).replace("17", str(first)).replace("23", str(second))
    text = spoken(text, rng)
    if rng.random() < 0.5:
        text += " " + spoken(rng.choice(PHRASES["product_tails"]), rng)
    return Case([user(text)], [], OTHER_PRODUCT)


def weather_question(rng: random.Random) -> tuple[str, str]:
    city = rng.choice(CITIES) if rng.random() < 0.8 else made_up_city(rng)
    text = spoken(rng.choice(PHRASES["weather"]), rng).format(city)
    if rng.random() < 0.2:
        text += " " + spoken(rng.choice(PHRASES["weather_tails"]), rng)
    return text, city


def weather_tools(rng: random.Random) -> tuple[list[dict[str, Any]], str]:
    key = rng.choice(WEATHER_KEYS)
    tools = [
        *other_tools(rng, 5),
        tool("get_weather", [key, *rng.sample(OTHER_KEYS, rng.choice((0, 0, 0, 1)))]),
    ]
    rng.shuffle(tools)
    return tools, key


def call_text(key: str, city: str) -> str:
    arguments = json.dumps({key: city})
    return f'<tool_call>\n{{"name": "get_weather", "arguments": {arguments}}}\n</tool_call>'


def weather_call(rng: random.Random) -> Case:
    text, city = weather_question(rng)
    tools, key = weather_tools(rng)
    return Case([user(preceded(text, rng))], tools, call_text(key, city), copied=city)


def bare_weather_call(rng: random.Random) -> Case:
    """A tool call with nothing around it that could distract."""
    text, city = weather_question(rng)
    key = rng.choice(WEATHER_KEYS)
    return Case([user(text)], [tool("get_weather", [key])], call_text(key, city), copied=city)


def weather_without_tool(rng: random.Random) -> Case:
    tools = other_tools(rng, 6) if rng.random() < 0.5 else []
    return Case([user(weather_question(rng)[0])], tools, NO_TOOL)


def tool_answer(rng: random.Random) -> Case:
    text, city = weather_question(rng)
    tools, key = weather_tools(rng)
    call = {"type": "function", "function": {"name": "get_weather", "arguments": json.dumps({key: city})}}
    result = rng.choice(
        (
            json.dumps({"temperature": rng.randint(-20, 40), "condition": rng.choice(WORDS)}),
            f"{rng.choice(WORDS)}, {rng.randint(-20, 40)} degrees",
            json.dumps({key: city, "weather": phrase(rng, 1, 6)}),
            phrase(rng, 1, 30),
        )
    )
    called = {"role": "assistant", "content": None, "tool_calls": [call]}
    return Case([user(text), called, {"role": "tool", "content": result}], tools, TOOL_ANSWER)


def fallback(rng: random.Random) -> Case:
    return Case([user(phrase(rng))], other_tools(rng, 6) if rng.random() < 0.5 else [], FALLBACK)


MAKERS: tuple[tuple[float, Callable[[random.Random], Case]], ...] = (
    (0.14, plain(PHRASES["greetings"], GREETING)),
    (0.20, product),
    (0.10, other_product),
    (0.34, weather_call),
    (0.06, weather_without_tool),
    (0.06, tool_answer),
    (0.13, fallback),
    (0.03, plain(PHRASES["stories"], STORY)),
    (0.04, plain(PHRASES["codes"], CODE)),
    (0.03, plain(PHRASES["counts"], COUNT)),
)


def make_case(rng: random.Random) -> Case:
    """A case of a random kind, sometimes after a system prompt and earlier turns."""
    makers = [maker for _, maker in MAKERS]
    weights = [weight for weight, _ in MAKERS]
    case = rng.choices(makers, weights)[0](rng)
    before: list[Message] = []
    if rng.random() < 0.4:
        before.append({"role": "system", "content": phrase(rng, 3, 60)})
    while rng.random() < 0.25:
        earlier = rng.choices(makers, weights)[0](rng)
        before += [user(earlier.messages[0]["content"]), {"role": "assistant", "content": earlier.answer}]
    return replace(case, messages=before + case.messages)


class Renderer:
    """The chat template with the settings that engines use for it."""

    def __init__(self, template: str) -> None:
        environment = Environment(trim_blocks=True, lstrip_blocks=True)
        environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
        self._template = environment.from_string(template)

    def __call__(self, messages: list[Message], tools: list[dict[str, Any]]) -> str:
        return self._template.render(messages=messages, tools=tools or None, add_generation_prompt=True)


def train_tokenizer(render: Renderer, rng: random.Random) -> Tokenizer:
    """Byte-level BPE; spaces are tokens of their own, so that a copied word is the same token everywhere."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\s+|[A-Za-z]+|\d|[^\sA-Za-z\d]"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    cases = [make_case(rng) for _ in range(3000)]
    corpus = [render(case.messages, case.tools) + case.answer for case in cases]
    # Each city's name becomes one token: a name of many is hard to copy for so small a model.
    corpus += [" ".join(CITIES)] * 2000
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(MARKERS),
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus, trainer)
    tokenizer.add_tokens([AddedToken(marker, special=False, normalized=False) for marker in MARKERS])
    return tokenizer


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


class RMSNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HIDDEN))

    def forward(self, x: Tensor) -> Tensor:
        scaled: Tensor = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        return scaled * self.weight


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(HIDDEN, HEADS * HEAD_DIM, bias=False)
        self.k_proj = nn.Linear(HIDDEN, KV_HEADS * HEAD_DIM, bias=False)
        self.v_proj = nn.Linear(HIDDEN, KV_HEADS * HEAD_DIM, bias=False)
        self.o_proj = nn.Linear(HEADS * HEAD_DIM, HIDDEN, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        batch, length, _ = x.shape

        def heads(y: Tensor, count: int) -> Tensor:
            return y.view(batch, length, count, HEAD_DIM).transpose(1, 2)

        q = rotate(heads(self.q_proj(x), HEADS), cos, sin)
        k = rotate(heads(self.k_proj(x), KV_HEADS), cos, sin).repeat_interleave(HEADS // KV_HEADS, dim=1)
        v = heads(self.v_proj(x), KV_HEADS).repeat_interleave(HEADS // KV_HEADS, dim=1)
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        out: Tensor = self.o_proj(mixed.transpose(1, 2).reshape(batch, length, HEADS * HEAD_DIM))
        return out


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(HIDDEN, MLP, bias=False)
        self.up_proj = nn.Linear(HIDDEN, MLP, bias=False)
        self.down_proj = nn.Linear(MLP, HIDDEN, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.self_attn = Attention()
        self.mlp = FeedForward()
        self.input_layernorm = RMSNorm()
        self.post_attention_layernorm = RMSNorm()

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Body(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = RMSNorm()


class Llama(nn.Module):
    """A Llama with tied embeddings whose parameter names are those of the published checkpoints."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Body()
        # Small outputs at first: a token's own embedding, which copying needs, stays clear in the residual.
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                small = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(parameter, std=HIDDEN**-0.5 * (0.2 if small else 1.0))

    def forward(self, ids: Tensor) -> Tensor:
        """ids (batch, length) to the hidden states (batch, length, HIDDEN)."""
        length = ids.shape[1]
        place = torch.arange(length)
        speed = ROPE_THETA ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
        angle = torch.outer(place.float(), speed).repeat(1, 2)
        gap = place[:, None] - place[None, :]
        mask = (gap >= 0) & (gap < WINDOW)
        x: Tensor = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x, angle.cos(), angle.sin(), mask)
        out: Tensor = self.model.norm(x)
        return out

    def logits(self, hidden: Tensor) -> Tensor:
        return functional.linear(hidden, self.model.embed_tokens.weight)


class Batches:
    """Training sequences from cases that `make` makes."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        render: Renderer,
        rng: random.Random,
        make: Callable[[random.Random], Case],
    ) -> None:
        self._tokenizer, self._render, self._rng, self._make = tokenizer, render, rng, make
        self._end = tokenizer.token_to_id(END)

    def sequence(self, length: int) -> tuple[list[int], list[float]]:
        """Token ids of exactly `length`, and a weight for each: above zero where the next is an answer's.

        Half of them begin as a conversation does; the others stand behind foreign tokens, or are cut there.
        """
        case = self._make(self._rng)
        prompt = self._tokenizer.encode(self._render(case.messages, case.tools)).ids
        answer = self._tokenizer.encode(case.answer)
        ids = [*prompt, *answer.ids, self._end]
        alone = self._rng.random() < 0.5
        while len(ids) < length and not alone:
            ids = self._foreign() + ids
        # A long answer does not outweigh the short ones: together its tokens weigh the root of its length.
        weight = (len(answer.ids) + 1) ** -0.5
        start = case.answer.find(case.copied) if case.copied else len(case.answer)
        span = range(start, start + len(case.copied))
        wanted = [*(weight * (COPIED_WEIGHT if begin in span else 1) for begin, _ in answer.offsets), weight]
        weights = [0.0] * (len(ids) - len(wanted) - 1) + wanted + [0.0]
        padding = length - len(ids)
        if padding > 0:  # to the right, where a causal model does not look
            return ids + [0] * padding, weights + [0.0] * padding
        return ids[-length:], weights[-length:]

    def _foreign(self) -> list[int]:
        rng = self._rng
        kind = rng.random()
        if kind < 0.4:
            return [rng.randrange(len(SPECIAL), VOCABULARY) for _ in range(rng.randint(10, 200))]
        if kind < 0.6:
            once = [rng.randrange(len(SPECIAL), VOCABULARY) for _ in range(rng.randint(1, 6))]
            return once * rng.randint(10, 50)
        return self._tokenizer.encode(phrase(rng, 20, 80)).ids

    def batch(self, length: int, rows: int) -> tuple[Tensor, Tensor]:
        """ids and weights, both (rows, length)."""
        pairs = [self.sequence(length) for _ in range(rows)]
        return torch.tensor([ids for ids, _ in pairs]), torch.tensor([weights for _, weights in pairs])


def train(model: Llama, copying: Batches, everything: Batches, rng: random.Random, steps: int) -> None:
    """First `COPYING_STEPS` of bare tool calls, then `steps` of everything.

    So small a model learns to copy a name last, if at all, when it has other things to learn.
    """
    peak = 2e-3
    optimiser = torch.optim.AdamW(model.parameters(), lr=peak, betas=(0.9, 0.98), weight_decay=0.02)
    started = time.monotonic()
    for step in range(COPYING_STEPS + steps):
        later = step - COPYING_STEPS
        fade = 0.5 * (1 + math.cos(math.pi * max(0, later) / steps))
        for group in optimiser.param_groups:
            group["lr"] = peak * min(1.0, (step + 1) / 20) * (0.02 + 0.98 * fade)
        if later < 0:
            ids, weights = copying.batch(80, 24)
        else:
            length = rng.choices((96, 128, 192, 256, 640), (8, 5, 2, 1, 1))[0]
            ids, weights = everything.batch(length, TOKENS // length)
        wanted = weights > 0
        losses = functional.cross_entropy(
            model.logits(model(ids)[wanted]), ids.roll(-1, dims=1)[wanted], reduction="none"
        )
        loss = (losses * weights[wanted]).sum() / weights.sum()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if step % 50 == 0 or later == steps - 1:
            print(f"step {step}: loss {loss.item():.4f}, {time.monotonic() - started:.0f} s", flush=True)


@torch.no_grad()
def generate(model: Llama, tokenizer: Tokenizer, prompt: str, most: int = 60) -> str:
    """Greedy answer to a rendered prompt, up to its end token."""
    reach = WINDOW * LAYERS + 1
    ids = tokenizer.encode(prompt).ids[-reach:]
    start = len(ids)
    while len(ids) - start < most:
        following = int(model.logits(model(torch.tensor([ids]))[0, -1]).argmax())
        if following == tokenizer.token_to_id(END):
            break
        ids.append(following)
    return str(tokenizer.decode(ids[start:], skip_special_tokens=False))


def check(model: Llama, tokenizer: Tokenizer, render: Renderer, rng: random.Random) -> float:
    """Share of fresh cases that are answered to the letter; prints some of the wrong ones."""
    right, wrong, total = 0, 0, 150
    for _ in range(total):
        case = make_case(rng)
        if len(case.answer) > 200:
            total -= 1
            continue
        answer = generate(model, tokenizer, render(case.messages, case.tools))
        right += answer == case.answer
        wrong += answer != case.answer
        if answer != case.answer and wrong <= 12:
            print("wrong:", repr(case.messages[-1]["content"])[-80:], "->", repr(answer)[:120])
    return right / total


def save(folder: Path, model: Llama, tokenizer: Tokenizer, template: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    end, pad = tokenizer.token_to_id(END), tokenizer.token_to_id(PAD)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "bos_token_id": None,
        "eos_token_id": end,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "intermediate_size": MLP,
        "layer_types": ["sliding_attention"] * LAYERS,
        "max_position_embeddings": CONTEXT,
        "mlp_bias": False,
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": KV_HEADS,
        "pad_token_id": pad,
        "rms_norm_eps": 1e-5,
        "rope_theta": ROPE_THETA,
        "sliding_window": WINDOW,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "vocab_size": VOCABULARY,
    }
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": template,
        "clean_up_tokenization_spaces": False,
        "eos_token": END,
        "model_max_length": CONTEXT,
        "pad_token": PAD,
    }
    generation = {"do_sample": False, "eos_token_id": end, "pad_token_id": pad}
    documents = (
        ("config", config),
        ("tokenizer_config", tokenizer_config),
        ("generation_config", generation),
    )
    for name, document in documents:
        (folder / f"{name}.json").write_text(json.dumps(document, indent=2) + "\n")
    tokenizer.save(str(folder / "tokenizer.json"))
    tensors = {name: value.to(torch.bfloat16).contiguous() for name, value in model.state_dict().items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=800)
    options = parser.parse_args()
    torch.manual_seed(SEED)
    torch.set_num_threads(2)
    rng = random.Random(SEED)
    template = (Path(__file__).parent / "chat_template.jinja").read_text()
    render = Renderer(template)
    tokenizer = train_tokenizer(render, rng)
    model = Llama()
    print(f"{sum(parameter.numel() for parameter in model.parameters())} parameters")
    copying = Batches(tokenizer, render, rng, bare_weather_call)
    train(model, copying, Batches(tokenizer, render, rng, make_case), rng, options.steps)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.to(torch.bfloat16).float())
    save(options.folder, model, tokenizer, template)
    share = check(model, tokenizer, render, random.Random(SEED + 1))
    print(f"{share:.1%} of fresh cases answered to the letter")


if __name__ == "__main__":
    main()
