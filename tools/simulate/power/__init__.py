"""Simulates the power loss of brokers at every call of their disks, with real logs under the rules of replication."""

from tools.simulate.power.run import STATES, Outcome, simulate

__all__ = ["STATES", "Outcome", "simulate"]
