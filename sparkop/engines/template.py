"""What both engines do alike: a rank is a container of own arguments, the spec's, mounts and environment."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from sparkop.engines import common
from sparkop.engines.base import Manners, NodeFacts, RankContainer
from sparkop.errors import BlockedError
from sparkop.hosts.base import Mount
from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import NodeSpec


class EngineTemplate(ABC):
    """An Engine; the two kinds fill in what differs."""

    manners: Manners
    aliases: Mapping[str, str]
    """Other spellings of flags to the ones that are rendered."""

    @abstractmethod
    def own_arguments(self, spec: ClusterSpec, facts: Sequence[NodeFacts], rank: int) -> list[str]:
        """What sparkop puts on a rank's command line before the spec's own arguments."""

    def closing_arguments(
        self,
        spec: ClusterSpec,  # noqa: ARG002
        facts: Sequence[NodeFacts],  # noqa: ARG002
        rank: int,  # noqa: ARG002
    ) -> list[str]:
        """What sparkop puts after the spec's own arguments, where nothing can override it."""
        return []

    @abstractmethod
    def own_environment(self, spec: ClusterSpec, node: NodeFacts) -> dict[str, str]:
        """What sparkop sets; the spec's own environment wins over it."""

    def own_mounts(self, spec: ClusterSpec, node: NodeSpec, home: str) -> list[Mount]:  # noqa: ARG002
        """Mounts after that of the weights."""
        return []

    def ranks(self, spec: ClusterSpec, facts: Sequence[NodeFacts]) -> tuple[RankContainer, ...]:
        """See Engine.ranks."""
        if [fact.name for fact in facts] != [node.name for node in spec.nodes]:
            raise ValueError("facts must be of the spec's nodes, in their order")
        common.refuse_secrets(spec)
        return tuple(
            self._rank(spec, facts, rank, name) for rank, name in enumerate(common.container_names(spec))
        )

    def optional_files(self, spec: ClusterSpec) -> tuple[str, ...]:
        """See Engine.optional_files."""
        path = common.preload_file(spec.engine.nccl)
        return (path,) if path else ()

    def key_file(self, key: str) -> bytes:
        """YAML that the engine merges before its command line (--config). JSON's quoting is valid YAML.

        Raises BlockedError for a key that the engine would take for something else.
        """
        if not re.fullmatch(r"[!-,.-~][!-~]*", key):
            raise BlockedError(
                "the API key can't be handed to the engine",
                cause="it is empty, begins with a dash, or holds blanks or other than ASCII characters",
                remedy="put another key into the key's file; `openssl rand -hex 32` makes one",
            )
        return f"api-key: {json.dumps(key)}\n".encode()

    def _rank(self, spec: ClusterSpec, facts: Sequence[NodeFacts], rank: int, name: str) -> RankContainer:
        settings = spec.engine.container
        node, fact = spec.nodes[rank], facts[rank]
        preload_mounts, preload_environment = common.preload(spec, facts, fact.home)
        mounts = [
            common.weights_mount(spec, node, fact.home),
            *self.own_mounts(spec, node, fact.home),
            *common.cache_mounts(spec, node, fact.home),
            *preload_mounts,
            *common.extra_mounts(settings, fact.home),
        ]
        if rank == 0 and common.has_key(spec):
            mounts.append(common.key_mount(spec, node, fact.home))
        return RankContainer(
            rank=rank,
            node=node.name,
            container=name,
            image=common.image_reference(spec),
            entrypoint=settings.entrypoint,
            arguments=(
                *self.own_arguments(spec, facts, rank),
                *common.extra_arguments(spec, rank),
                *self.closing_arguments(spec, facts, rank),
            ),
            environment={
                **self.own_environment(spec, fact),
                **preload_environment,
                **spec.engine.environment,
            },
            mounts=tuple(mounts),
            options=common.options(settings),
            private=frozenset(spec.engine.environment),
        )
