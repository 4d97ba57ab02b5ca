"""How clients of the API are set up: `sparkop connect`."""

from typing import Annotated, Literal

from pydantic import Field

from sparkop.spec.base import SpecModel, about

Level = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]


class ClientsSpec(SpecModel):
    """What a client of the API needs to know. `sparkop connect pi` writes it into Pi's configuration."""

    connect: tuple[Literal["pi"], ...] = Field(
        default=(),
        description="Clients on the machine that runs sparkop that diff observes and apply keeps in step, as "
        "`sparkop connect` sets them up. A client is never installed by apply.",
        json_schema_extra=about(example="[pi]"),
    )
    provider: str | None = Field(
        default=None,
        pattern=r"^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$",
        description="Name of the provider in the client's configuration.",
        json_schema_extra=about(default="the cluster's name", example="dsv41-sparks"),
    )
    title: str | None = Field(
        default=None,
        min_length=1,
        description="Name of the model as people read it.",
        json_schema_extra=about(default="the first served name"),
    )
    key_environment: str = Field(
        default="SPARKOP_API_KEY",
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="Environment variable from which the client takes the key; the key itself is "
        "never written there.",
        json_schema_extra=about(recipe="A: KEY_ENV"),
    )
    make_default: bool = Field(
        default=False,
        description="Make the model the one that the client starts with.",
        json_schema_extra=about(recipe="A: SET_DEFAULT"),
    )
    context_window: int | None = Field(
        default=None,
        ge=1,
        description="Context that the client may fill.",
        json_schema_extra=about(unit="tokens", default="the engine's context length"),
    )
    max_output_tokens: int | None = Field(
        default=None,
        ge=1,
        description="Longest answer that the client asks for.",
        json_schema_extra=about(unit="tokens", default="contextWindow"),
    )
    output_cap: Literal["keep", "remove"] = Field(
        default="keep",
        description="remove: requests go out without max_tokens, so that an answer ends when the "
        "model ends it.",
    )
    input: tuple[Literal["text", "image"], ...] = Field(
        default=("text",), min_length=1, description="What the model takes."
    )
    reasoning: bool = Field(default=True, description="Whether the model thinks before it answers.")
    reasoning_effort: dict[Level, Annotated[str, Field(min_length=1)] | None] = Field(
        default={},
        description="The client's thinking levels, and the reasoning_effort that the server "
        "understands for each; null hides a level. Empty: the parameter is not sent.",
        json_schema_extra=about(example="{low: low, high: high, max: max}"),
    )
