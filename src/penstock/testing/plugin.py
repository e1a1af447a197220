"""Defines the fixtures that pytest finds by itself. Nothing of the broker is imported before a test asks for one."""

import itertools
import re
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from penstock.testing.broker import Broker
    from penstock.testing.cluster import Cluster

_RUNNING = pytest.StashKey[dict[str, "Broker | Cluster"]]()
_START_UPS = pytest.StashKey[list[str]]()
_TOPIC_NUMBERS = itertools.count(1)
# A topic's name has at most 249 characters; the number at the end needs a few.
_NAME_LENGTH = 230


@pytest.fixture(scope="session")
def penstock_broker(pytestconfig: pytest.Config) -> "Iterator[Broker]":
    """A running broker, one for the session, or for each worker of pytest-xdist.

    Any Kafka client connects to `penstock_broker.bootstrap`. After each test its faults are cleared, and it is
    restarted with its data if its disk has failed or its clock was advanced.
    """
    began = perf_counter()
    from penstock.testing.broker import Broker

    imported = perf_counter()
    with Broker() as broker:
        running = pytestconfig.stash.setdefault(_RUNNING, {})
        running["broker"] = broker
        pytestconfig.stash.setdefault(_START_UPS, []).append(
            f"a broker was there after {(perf_counter() - began) * 1000:.0f} ms, "
            f"{(imported - began) * 1000:.0f} ms of them for imports"
        )
        yield broker
        del running["broker"]


@pytest.fixture(scope="session")
def penstock_cluster(pytestconfig: pytest.Config) -> "Iterator[Cluster]":
    """A running cluster of three brokers, one for the session, or for each worker of pytest-xdist.

    Any Kafka client connects to `penstock_cluster.bootstrap`. After each test its faults are cleared and its network is
    mended, and it is restarted with its data if a broker is not running or its clock was advanced.
    """
    from penstock.testing.cluster import Cluster

    with Cluster() as cluster:
        running = pytestconfig.stash.setdefault(_RUNNING, {})
        running["cluster"] = cluster
        yield cluster
        del running["cluster"]


@pytest.fixture
def penstock_topic(penstock_broker: "Broker", request: pytest.FixtureRequest) -> str:
    """The name of a new topic of one partition, which names the test that it is for."""
    name = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name).strip("-.")[:_NAME_LENGTH]
    return penstock_broker.create_topic(f"{name}-{next(_TOPIC_NUMBERS)}")


@pytest.fixture
def penstock_broker_factory() -> "Iterator[Callable[..., Broker]]":
    """Starts brokers for one test alone, with the arguments of `penstock.testing.Broker`."""
    from penstock.testing.broker import Broker

    brokers: list[Broker] = []

    def start(*args: Any, **settings: Any) -> Broker:
        broker = Broker(*args, **settings)
        broker.start()
        brokers.append(broker)
        return broker

    yield start
    for broker in reversed(brokers):
        broker.close()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """What a test did to the broker or the cluster of the session does not reach the next one."""
    for running in item.config.stash.get(_RUNNING, {}).values():
        running.reset()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for line in config.stash.get(_START_UPS, ()):
        if config.get_verbosity() >= 0:
            terminalreporter.write_line(f"penstock: {line}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist has no terminal: it sends its lines to the process that has one."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["penstock"] = session.config.stash.get(_START_UPS, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    lines = getattr(node, "workeroutput", {}).get("penstock", [])
    node.config.stash.setdefault(_START_UPS, []).extend(f"{node.gateway.id}: {line}" for line in lines)
