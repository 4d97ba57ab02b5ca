"""Configuration and tensor sizes of a repository, from the hub: small files and ranged reads of headers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sparkop.errors import BlockedError
from sparkop.resources.weights.hub import describe
from sparkop.resources.weights.hub_words import in_words
from sparkop.threads import side_by_side

INDEX = "model.safetensors.index.json"
AT_ONCE = 8
"""Headers that are read at a time."""


def read_hub(
    name: str, revision: str, endpoint: str
) -> tuple[Mapping[str, Any], list[Mapping[str, Mapping[str, Any]]]]:
    """config.json, and the header of every safetensors file: tensor -> dtype, data_offsets.

    Raises BlockedError when the hub can't be asked or the repository has no config.json.
    """
    from huggingface_hub import HfApi

    repository = describe(name, revision, endpoint=endpoint)
    present = {file.path for file in repository.files}
    if "config.json" not in present:
        raise BlockedError(f"{name} has no config.json", remedy="correct weights.repository or revision")
    api = HfApi(endpoint=endpoint, library_name="sparkop")

    def text(path: str) -> Any:
        file = api.hf_hub_download(name, path, revision=repository.commit)
        return json.loads(Path(file).read_text(encoding="utf-8"))

    def header(path: str) -> Mapping[str, Mapping[str, Any]]:
        found = api.parse_safetensors_file_metadata(name, path, revision=repository.commit)
        folder = path.rpartition("/")[0]
        prefix = f"{folder}/" if folder else ""
        return {
            prefix + tensor: {"dtype": facts.dtype, "data_offsets": list(facts.data_offsets)}
            for tensor, facts in found.tensors.items()
        }

    with in_words(name, revision, endpoint):
        config = text("config.json")
        listed = set(text(INDEX)["weight_map"].values()) if INDEX in present else None
        files = [
            path
            for path in sorted(present)
            if path.endswith(".safetensors") and (listed is None or "/" in path or path in listed)
        ]
        headers = side_by_side(header, files, "headers", at_once=AT_ONCE)
    return config, headers
