"""The guide to several brokers, followed on loopback: three brokers by one command, then three with a ZooKeeper."""

import os
import socket
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import pytest

from penstock.broker.config.settings import load_settings
from tests.system.processes import spare_port
from tools.guides import INDEX, ROOT, Block, Guide, blocks
from tools.zookeeper.ensemble import Ensemble, install

PAGE = INDEX.parent / "cluster.md"
HOSTS = ("queue1", "queue2", "queue3")


class BrokersGuide(Guide):
    """Only what starts brokers of its own, with ports that nothing else has."""

    ports: dict[str, str]

    @cached_property
    def blocks(self) -> list[Block]:
        return [each for each in blocks(self.path) if "brokers" in each.marks]

    def script(self) -> str:
        made = super().script()
        for port, other in self.ports.items():
            made = made.replace(port, other)
        return made


def ports_in_a_row(count: int) -> list[int]:
    while True:
        first = spare_port()
        if all(_is_free(first + number) for number in range(count)):
            return [first + number for number in range(count)]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[Ensemble]:
    install()
    with Ensemble(nodes=1) as started:
        yield started


@pytest.mark.timeout(300)
def test_brokers_of_one_machine_and_then_of_zookeeper_run_as_the_guide_says(
    tmp_path: Path, zookeeper: Ensemble
) -> None:
    first, *others = map(str, ports_in_a_row(3))
    guide = BrokersGuide(PAGE)
    of_zookeeper = zookeeper.connect.rpartition(":")[2]
    object.__setattr__(guide, "ports", {"9092": first, "9093": others[0], "9094": others[1], "2181": of_zookeeper})
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
    }
    shown = guide.follow(tmp_path, environment, address=f"localhost:{first}")
    assert "3 brokers of cluster" in shown
    assert "with 1 topic of 6 partitions" in shown


def test_the_config_of_three_machines_is_one(tmp_path: Path) -> None:
    (block,) = [each for each in blocks(PAGE) if "broker.toml" in each.marks]
    for number, host in enumerate(HOSTS):
        path = tmp_path / f"{host}.toml"
        path.write_text(block.code.replace('"node.id" = 0', f'"node.id" = {number}').replace("//queue1", f"//{host}"))
        config, warnings = load_settings(flags={}, overrides=[], environ={"HOME": "/"}, config_file=path)
        assert warnings == []
        assert config.node_id == number
        advertised = config.advertised_listeners(bound_ports={"PLAINTEXT": 9092}, machine="unused")
        assert [each.host for each in advertised] == [f"{host}.example"]
