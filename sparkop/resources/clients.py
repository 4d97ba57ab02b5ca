# ruff: noqa: ARG002 (the parameters of the Resource protocol)
"""Clients on the controller that the spec lists. Nothing of the cluster stands on them, so a client that
can't be set up is a warning and never keeps the model from serving."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkop.engines.paths import key_path
from sparkop.errors import SparkopError
from sparkop.records import dataclass
from sparkop.resources.base import Context, Difference, Resource
from sparkop.resources.desired import Desired
from sparkop.resources.observed import History, Observed
from sparkop.resources.operations import Action, Cause, Operation
from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import CONTROLLER

if TYPE_CHECKING:
    from sparkop.clients.profile import Profile

KIND = "clients"


@dataclass(frozen=True)
class PiSeen:
    """What differs on the controller, as (field, observed, desired); or why it can't be said."""

    differences: tuple[tuple[str, str, str], ...] = ()
    problem: str = ""


class Clients(Resource):
    """One operation a client, on the controller, which has no lease: it writes there as its user."""

    kind = KIND

    def prepare(self, spec: ClusterSpec) -> PiSeen | None:
        if "pi" not in spec.clients.connect:
            return None
        from sparkop.clients.pi import agent_folder, plan_connect, texts_of
        from sparkop.clients.pi_files import differences

        try:
            profile = _profile(spec)
            plan = plan_connect(profile, agent_folder())
            return PiSeen(tuple(differences(profile, texts_of(plan))) if plan.needed else ())
        except SparkopError as error:
            return PiSeen(problem=error.message)

    def diff(self, desired: Desired, observed: Observed, history: History) -> Difference:
        seen = desired.outside.get(KIND)
        if not isinstance(seen, PiSeen):
            return Difference()
        if seen.problem:
            return Difference(warnings=(f"{CONTROLLER}: Pi is left as it is: {seen.problem}",))
        if not seen.differences:
            return Difference()
        field, before, after = seen.differences[0]
        more = f" (and {len(seen.differences) - 1} more)" if len(seen.differences) > 1 else ""
        action = Action.CREATE if before == "absent" else Action.UPDATE
        return Difference((Operation(action, CONTROLLER, f"{KIND}/pi", Cause(field, before, after + more)),))

    def perform(self, operation: Operation, context: Context) -> None:
        from sparkop.clients.pi import agent_folder, connect, plan_connect

        plan = plan_connect(_profile(context.desired.spec), agent_folder())
        for backup in connect(plan):
            context.log(f"as it was: {backup}")


def _profile(spec: ClusterSpec) -> Profile:
    from sparkop.clients.profile import profile_of

    return profile_of(spec, key_path(spec))
