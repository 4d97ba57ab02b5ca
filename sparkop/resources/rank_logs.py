# ruff: noqa: ARG002 (the parameters of the Resource protocol)
"""The logs of the ranks, kept on each rank's own node by a process there (``node/follow.py``).

They are readable when the container is gone. A follower that is missing is started again; nothing else is
touched. It ends with its container, so `stop` and `destroy` have nothing to end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkop.errors import LeaseHeldError, SparkopError, UnreachableError
from sparkop.hosts.base import Json
from sparkop.hosts.document import Document
from sparkop.hosts.obstacle import obstacle
from sparkop.resources.base import Context, Difference, Resource
from sparkop.resources.desired import Desired
from sparkop.resources.group import Found, examine
from sparkop.resources.masking import ON_NODES
from sparkop.resources.observed import History, Observed
from sparkop.resources.operations import Action, Cause, Operation, with_remedy
from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import NodeSpec

KIND = "logs"


def log_file(rank: int) -> str:
    """Where a rank's log is kept, below the state folder of its node; older parts are ``.1`` to ``.3``."""
    return f"logs/rank-{rank}.log"


def follow(context: Context, node: str, container: str, rank: int) -> None:
    """Have the container's log kept from now on; kept already is success."""
    arguments = {"name": container, "file": log_file(rank), **ON_NODES}
    context.host(node).act("container.logs.follow", arguments, context.fence(node))


def follow_or_tell(context: Context, node: str, container: str, rank: int) -> None:
    """The same for a rank that has just been started: it serves without its log too."""
    try:
        follow(context, node, container, rank)
    except (LeaseHeldError, UnreachableError):
        raise
    except SparkopError as error:
        context.log(f"the log of {container} is not kept: {error.message}", node)


class RankLogs(Resource):
    """One follower for each rank that runs and may stay."""

    kind = KIND

    def request(self, spec: ClusterSpec, node: NodeSpec, outside: Any) -> Mapping[str, Json]:
        return {"follower": True}

    def diff(self, desired: Desired, observed: Observed, history: History) -> Difference:
        operations: list[Operation] = []
        warnings: list[str] = []
        group = examine(desired, observed, history)
        for found in () if group.causes else group.found:
            document = observed.documents[found.node]
            if not found.container.running or found in group.left_over:
                continue
            reason = document.error("follower")
            if reason is not None:
                # no unknown: a rank that has died is replaced whether its log was kept or not
                misplaced = obstacle(reason)
                told = with_remedy(reason, misplaced.remedy(found.node) if misplaced else None)
                warnings.append(f"{found.node}: it can't be told whether the log is kept: {told}")
            elif document.follower is not None and document.follower.unreadable and _its(document, found):
                warnings.append(
                    f"{found.node}: the log of {found.container.name} is not kept: "
                    f"{document.follower.unreadable}"
                )
            elif document.follower is not None and not (_its(document, found) and document.follower.alive):
                operations.append(_start(found, document))
        return Difference(tuple(operations), warnings=tuple(warnings))

    def perform(self, operation: Operation, context: Context) -> None:
        parameters = operation.parameters
        follow(context, operation.node, str(parameters["name"]), int(parameters["rank"]))


def _its(document: Document, found: Found) -> bool:
    return document.follower is not None and document.follower.container == found.container.id


def _start(found: Found, document: Document) -> Operation:
    here = "gone" if _its(document, found) else "missing"
    cause = Cause("follower", here, f"keeps {log_file(found.stamp.rank)}")
    parameters = {"name": found.container.name, "rank": found.stamp.rank}
    return Operation(Action.START, found.node, KIND, cause, parameters=parameters)
