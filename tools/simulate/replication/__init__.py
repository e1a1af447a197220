"""A simulation of replication: controller, leaders and followers over logs in memory, through schedules full of
faults."""

from tools.simulate.replication.states import STATES
from tools.simulate.replication.world import World, simulate

__all__ = ["STATES", "World", "simulate"]
