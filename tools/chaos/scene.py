"""What a fault works with: the stage, the clients, the host that the seed has drawn by its role, and chance."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Final, TypeAlias

from tools.chaos.crew import Crew
from tools.chaos.shim import Shim
from tools.chaos.stage import BrokerProcess, Stage
from tools.chaos.systems.penstock import PenstockStage
from tools.chaos.view import View
from tools.zookeeper.ensemble import Ensemble


class Role(StrEnum):
    LEADER = "leader"
    """Of a partition that is drawn, too."""
    FOLLOWER = "follower"
    CONTROLLER = "controller"
    COORDINATOR = "coordinator"
    ZOOKEEPER_LEADER = "zookeeper leader"
    """The host whose ZooKeeper leads: its broker is hit, or the host as a whole."""


BROKERS: Final = (Role.LEADER, Role.FOLLOWER, Role.CONTROLLER, Role.COORDINATOR)
HOST_ROLES: Final = (*BROKERS, Role.ZOOKEEPER_LEADER)


@dataclass(slots=True)
class Scene:
    stage: Stage
    crew: Crew
    host: int
    """The one that has the role."""
    chance: Random
    told: list[str] = field(default_factory=list)
    """What a fault says of itself, for the report of the round."""

    @property
    def broker(self) -> BrokerProcess:
        return self.stage.brokers[self.host]

    @property
    def shim(self) -> Shim:
        shim = self.broker.shim
        assert shim is not None, "this stage has no shims"
        return shim

    @property
    def ensemble(self) -> Ensemble:
        assert isinstance(self.stage, PenstockStage), "this stage has no ZooKeeper"
        return self.stage.ensemble

    @property
    def session_seconds(self) -> float:
        return self.stage.session_seconds

    def draw(self, role: Role) -> int:
        """The host that has this role now."""
        if role is Role.ZOOKEEPER_LEADER:
            return self.ensemble.leader().number
        return host_of(role, self.stage.view(self.crew.group), self.crew.topic, self.chance)


Course: TypeAlias = Iterator[float]


@dataclass(frozen=True, slots=True)
class Fault:
    what: str
    roles: tuple[Role, ...]
    run: Callable[[Scene], Course]
    takes_power: bool = False
    """Brokers need disks of their own."""
    is_for_all: bool = False
    """It needs nothing that Penstock alone has: all systems can have it."""


def host_of(role: Role, view: View, topic: str, chance: Random) -> int:
    """The number of the host whose broker has this role now."""
    if role is Role.CONTROLLER:
        return view.controller
    if role is Role.COORDINATOR:
        assert view.coordinator is not None, "the group has no coordinator"
        return view.coordinator
    place = chance.choice(sorted(place for place in view.partitions if place[0] == topic))
    replicas = view.partitions[place]
    if role is Role.LEADER:
        return replicas.leader
    return chance.choice(sorted(replicas.isr - {replicas.leader}))
