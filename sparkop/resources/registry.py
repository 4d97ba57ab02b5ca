"""All kinds of resources, in the order in which they are told, and what each one stands on."""

from __future__ import annotations

from collections.abc import Mapping

from sparkop.resources.api_key import ApiKey
from sparkop.resources.base import Resource
from sparkop.resources.clients import Clients
from sparkop.resources.endpoint import Endpoint
from sparkop.resources.exl3_plan import Exl3Plan
from sparkop.resources.foreign import Foreign
from sparkop.resources.image.resource import EngineImage
from sparkop.resources.intent import HumanIntent
from sparkop.resources.memguard import MemoryGuard
from sparkop.resources.preconditions import PRECONDITIONS
from sparkop.resources.rank import Ranks
from sparkop.resources.rank_logs import RankLogs
from sparkop.resources.state import StateFiles
from sparkop.resources.trip import GuardTrip
from sparkop.resources.weights.resource import WeightFiles

RESOURCES: tuple[Resource, ...] = (
    *PRECONDITIONS,
    Foreign(),
    StateFiles(),
    ApiKey(),
    EngineImage(),
    WeightFiles(),
    Exl3Plan(),
    MemoryGuard(),
    GuardTrip(),
    HumanIntent(),
    Ranks(),
    RankLogs(),
    Endpoint(),
    Clients(),
)

GROUP_RESOURCES: tuple[Resource, ...] = (MemoryGuard(), HumanIntent())
"""What has to be read to stop a cluster or to show its logs: containers by their labels, and the mark of a
stop. Asks no hub, and nothing that an engine would render."""

STANDS_ON: Mapping[str, tuple[str, ...]] = {
    "prerequisites": (),
    "fabric": (),
    "disk": (),
    "foreign": ("prerequisites", "state"),
    "state": ("disk",),
    "api-key": ("state",),
    "image": ("prerequisites", "disk", "state"),
    "weights": ("disk", "state"),
    "exl3-plan": ("state", "weights"),
    "memguard": ("prerequisites", "state", "image", "foreign"),
    "trip": ("state",),
    "intent": ("state",),
    "logs": ("state",),
    "clients": (),
}
"""Kind -> kinds that must be right before it, on the same node. Ranks and endpoint stand on everything, on
all nodes."""
