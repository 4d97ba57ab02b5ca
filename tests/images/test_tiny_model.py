"""The tiny model's files fit together and stay small; that it answers is seen in the lab."""

from __future__ import annotations

import json
import struct
from math import prod
from typing import Any

import pytest

from sparkop.lab.images import MODEL_FILES, model_folder

BYTES = {"BF16": 2}
LIMIT = 4_000_000


@pytest.fixture(scope="module")
def header() -> dict[str, Any]:
    with (model_folder() / "model.safetensors").open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        tensors = json.loads(file.read(size))
    tensors.pop("__metadata__", None)
    return {"size": size, "tensors": tensors}


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((model_folder() / "config.json").read_text())
    return document


def read(name: str) -> Any:
    return json.loads((model_folder() / name).read_text())


def test_all_files_together_are_under_four_megabytes() -> None:
    assert sum((model_folder() / name).stat().st_size for name in MODEL_FILES) < LIMIT


def test_the_weights_file_is_whole(header: dict[str, Any]) -> None:
    """A cut file (a commit gone wrong) must not be found out by a boot of vLLM."""
    end = 0
    for tensor in sorted(header["tensors"].values(), key=lambda each: each["data_offsets"][0]):
        begin, stop = tensor["data_offsets"]
        assert begin == end
        assert stop - begin == prod(tensor["shape"]) * BYTES[tensor["dtype"]]
        end = stop
    assert (model_folder() / "model.safetensors").stat().st_size == 8 + header["size"] + end


def test_the_shapes_are_those_of_the_configuration(header: dict[str, Any], config: dict[str, Any]) -> None:
    shapes = {name: tensor["shape"] for name, tensor in header["tensors"].items()}
    hidden, heads, kv, dim = (
        config[key] for key in ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim")
    )
    assert shapes["model.embed_tokens.weight"] == [config["vocab_size"], hidden]
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        assert shapes[f"{prefix}.self_attn.q_proj.weight"] == [heads * dim, hidden]
        assert shapes[f"{prefix}.self_attn.k_proj.weight"] == [kv * dim, hidden]
        assert shapes[f"{prefix}.mlp.down_proj.weight"] == [hidden, config["intermediate_size"]]
    assert len(shapes) == 2 + 9 * config["num_hidden_layers"]


def test_it_can_be_split_over_two_ranks_and_holds_a_long_context(config: dict[str, Any]) -> None:
    assert config["num_attention_heads"] % 2 == config["num_key_value_heads"] % 2 == 0
    assert config["intermediate_size"] % 2 == config["vocab_size"] % 2 == 0
    assert config["max_position_embeddings"] >= 32768
    assert config["layer_types"] == ["sliding_attention"] * config["num_hidden_layers"]


def test_tokenizer_and_configurations_agree(config: dict[str, Any]) -> None:
    tokenizer, tokenizer_config = read("tokenizer.json"), read("tokenizer_config.json")
    names = {token["content"]: token for token in tokenizer["added_tokens"]}
    assert names[tokenizer_config["eos_token"]]["id"] == config["eos_token_id"]
    assert read("generation_config.json")["eos_token_id"] == config["eos_token_id"]
    highest = max([*tokenizer["model"]["vocab"].values(), *(token["id"] for token in names.values())])
    assert highest < config["vocab_size"]
    # vLLM's hermes parser looks for the markers in the text: they must not be dropped as special tokens.
    assert not names["<tool_call>"]["special"]
    assert not names["</tool_call>"]["special"]


def test_the_chat_template_is_the_one_that_it_was_trained_with() -> None:
    template = (model_folder() / "chat_template.jinja").read_text()
    assert read("tokenizer_config.json")["chat_template"] == template
