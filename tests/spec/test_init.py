"""init: a valid, commented spec for any number of nodes."""

from __future__ import annotations

import pytest

from sparkop.errors import UsageError
from sparkop.spec.init import Found, Wishes, new_spec
from sparkop.spec.load import load_text
from sparkop.spec.recipes import recipe_text, recipes

TWO = ("user@10.0.0.1", "user@10.0.0.2")


@pytest.mark.parametrize("recipe", recipes())
@pytest.mark.parametrize("targets", [("local",), TWO, ("local", "a", "b:2222")])
def test_it_is_valid_and_keeps_the_recipe(recipe: str, targets: tuple[str, ...]) -> None:
    new, old = load_text(new_spec(Wishes(recipe, targets))).spec, load_text(recipe_text(recipe)).spec
    assert len(new.nodes) == len(targets)
    assert [node.remote is None for node in new.nodes] == [target == "local" for target in targets]
    assert (new.weights, new.image, new.memory, new.api, new.name) == (
        old.weights,
        old.image,
        old.memory,
        old.api,
        old.name,
    )
    if len(targets) == len(old.nodes):
        assert new.engine == old.engine


@pytest.mark.parametrize("recipe", recipes())
def test_comments_survive(recipe: str) -> None:
    """The new spec is for people to read: only what speaks of changing the targets is reworded."""
    text = new_spec(Wishes(recipe, TWO))
    lost = [
        line
        for line in recipe_text(recipe).splitlines()
        if line.lstrip().startswith("#") and line not in text and "ssh targets below" not in line
    ]
    assert [line for line in lost if "sparkop apply" not in line] == []
    assert "sparkop explain" in text
    assert "sparkop apply spec.yaml" in text
    assert "<-" not in text


def test_names_and_facts_of_the_nodes() -> None:
    text = new_spec(
        Wishes(recipes()[0], TWO, name="mine"),
        {0: Found("dgx-a.lan", "fabric 10.10.10.13 on enp1s0f0np0, devices rocep1s0f0"), 1: Found("dgx-a")},
    )
    spec = load_text(text).spec
    assert spec.name == "mine"
    assert [node.name for node in spec.nodes] == ["dgx-a", "spark-2"], "the same name twice is not taken"
    assert "# dgx-a: fabric 10.10.10.13 on enp1s0f0np0" in text
    assert "# spark-2: no active fabric port seen" in text


@pytest.mark.parametrize(
    ("wishes", "said"),
    [
        (Wishes("qwen", TWO), "there is no recipe qwen"),
        (Wishes(recipes()[0], ("a b",)), "must be user@host:port"),
        (Wishes(recipes()[0], ("u@a", "u@a")), "named twice"),
        (Wishes(recipes()[0], ("local", "local")), "named twice"),
    ],
)
def test_refused(wishes: Wishes, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        new_spec(wishes)


def test_recipes_are_those_that_the_requirements_name() -> None:
    assert {"deepseek-v4.1-flash", "qwen3.8-flash-next"} <= set(recipes())
    assert not [name for name in recipes() if name.startswith("lab")]
