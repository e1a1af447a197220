"""Whole brokers of production and their clients in a simulated network, on simulated disks, by a simulated clock."""

from tools.simulate.brokers.world import STATES, Outcome, simulate

__all__ = ["STATES", "Outcome", "simulate"]
