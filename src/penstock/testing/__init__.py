"""Runs the production broker as an object in your tests, with pytest fixtures, a virtual clock and faults on
purpose."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.testing.broker import Broker
    from penstock.testing.clock import Clock
    from penstock.testing.cluster import Cluster
    from penstock.testing.faults import Fault, Faults
    from penstock.testing.node import Node

__all__ = ["Broker", "Clock", "Cluster", "Fault", "Faults", "Node"]

_MODULES = {
    "Broker": "broker",
    "Clock": "clock",
    "Cluster": "cluster",
    "Fault": "faults",
    "Faults": "faults",
    "Node": "node",
}


def __getattr__(name: str) -> object:
    # pytest imports this package with the plugin that it finds, also in projects that never start a broker.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
