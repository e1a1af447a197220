"""A simulation of the controllers and the image of a cluster, with the code of production, over a store with faults."""

from tools.simulate.controller.world import STATES, simulate

__all__ = ["STATES", "simulate"]
