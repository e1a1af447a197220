"""The plan gives each of several brokers on one host its number, its folder and its ports.

    broker 0        <data folder>, as a broker that is alone has it
    broker 1        <data folder>/1
    broker 2        <data folder>/2

A listener at port 9092 is at 9093 for broker 1 and at 9094 for broker 2; `HOST:9092,9192,9292` names a port for each.
"""

import os.path
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from penstock.broker.config.broker_table import BROKER_CONFIGS
from penstock.broker.config.endpoints import Endpoint
from penstock.broker.config.typed import BrokerConfig
from penstock.broker.config.values import ConfigError

SOCKET_SETTING: Final = "penstock.metadata.socket"
OWN_SETTINGS: Final = frozenset(
    {"node.id", "broker.id", "log.dirs", "log.dir", "listeners", "advertised.listeners", "penstock.metrics.listen"}
)
"""The settings that are no longer what the operator has set, but the plan's."""
_EVERYWHERE: Final = ("", "0.0.0.0", "::")


@dataclass(slots=True, frozen=True)
class BrokerPlan:
    """`settings` are those of `OWN_SETTINGS` that this broker is started with."""

    node_id: int
    data_path: str
    settings: Mapping[str, str]
    config: BrokerConfig

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Where the broker listens, for clients and for Prometheus."""
        return (*self.config.listeners, *filter(None, [self.config.metrics_listener]))


def plan_brokers(values: Mapping[str, str], count: int) -> list[BrokerPlan]:
    """Plans brokers 0 to `count` - 1 from the settings that all of them were given. `ConfigError` if the settings do
    not fit, or two of the brokers would get in each other's way."""
    _refuse_single(values)
    plans = [_plan(values, node_id, count) for node_id in range(count)]
    _refuse_shared_ports(plans)
    return plans


def one_disk_warnings(config: BrokerConfig) -> list[str]:
    """Warnings for an operator who asks for replicas that share a disk."""
    return [
        f"{name}={config[name]}: all brokers of --processes are on one machine, and one machine is one disk: if it is "
        "lost, so are all replicas; for replicas that protect take brokers on several machines"
        for name in ("default.replication.factor", "offsets.topic.replication.factor")
        if name in config.static and config.integer(name) > 1
    ]


def command_line(
    plan: BrokerPlan, program: Sequence[str], *, socket: str, overrides: Sequence[tuple[str, str]], rest: Sequence[str]
) -> list[str]:
    """The command that starts a broker. `overrides` are the operator's arguments of -X, each with the name it sets: a
    secret stays the name of a file there, since other users see command lines. `rest` follows as it is."""
    flags = {"node.id": "--node-id", "log.dirs": "--data-dir", "listeners": "--listen"}
    command = [*program, "serve"]
    for name, value in plan.settings.items():
        command += [flags[name], value] if name in flags else ["-X", f"{name}={value}"]
    command += ["-X", f"{SOCKET_SETTING}={socket}"]
    for name, text in overrides:
        if name not in OWN_SETTINGS:
            command += ["-X", text]
    return [*command, *rest]


def _plan(values: Mapping[str, str], node_id: int, count: int) -> BrokerPlan:
    data_paths = [path.strip() for path in values.get("log.dirs", values.get("log.dir", "")).split(",")]
    data_path = data_paths[0] if node_id == 0 else os.path.join(data_paths[0], str(node_id))
    own = {"node.id": str(node_id), "log.dirs": data_path}
    key = BROKER_CONFIGS["listeners"]
    listeners = values.get("listeners") or key.format(key.default) or ""
    own["listeners"] = _own_addresses("listeners", listeners, node_id, count)
    for name in ("advertised.listeners", "penstock.metrics.listen"):
        if values.get(name):
            own[name] = _own_addresses(name, values[name], node_id, count)
    others = {name: value for name, value in values.items() if name not in OWN_SETTINGS}
    return BrokerPlan(node_id, data_path, own, BrokerConfig.parse({**others, **own}))


def _own_addresses(setting: str, text: str, node_id: int, count: int) -> str:
    """A list of addresses, as one of the brokers has it."""
    return ",".join(_own_address(setting, address, ports, node_id, count) for address, ports in _addresses(text))


def _addresses(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each address of a list with all that follows it and is only a port."""
    items = [item.strip() for item in text.split(",")]
    while items:
        address, ports = items.pop(0), []
        while items and items[0].isdecimal():
            ports.append(items.pop(0))
        yield address, ports


def _own_address(setting: str, address: str, ports: list[str], node_id: int, count: int) -> str:
    host, colon, port = address.rpartition(":")
    if ports:
        if len(ports) + 1 != count:
            raise ConfigError(
                setting,
                f"{address} and what follows it are {len(ports) + 1} ports for {count} brokers; name a port for each, "
                "or one from which they count",
            )
        return f"{host}:{[port, *ports][node_id]}"
    if not colon or not port.isdecimal() or int(port) == 0:
        # Any free port, or an address that the config itself refuses with a better sentence.
        return address
    return f"{host}:{int(port) + node_id}"


def _refuse_single(values: Mapping[str, str]) -> None:
    for name in ("node.id", "broker.id"):
        if values.get(name, "0").strip() not in ("0", "-1"):
            raise ConfigError(name, "--processes numbers its brokers itself, from 0; leave this out")
    for name in ("zookeeper.connect", SOCKET_SETTING):
        if values.get(name):
            raise ConfigError(
                name,
                "--processes keeps the metadata of its brokers itself; leave this out, or start the brokers one by "
                "one, each with --zookeeper and --node-id",
            )


def _refuse_shared_ports(plans: Sequence[BrokerPlan]) -> None:
    endpoints = [(plan.node_id, endpoint) for plan in plans for endpoint in plan.endpoints]
    for (one, first), (other, second) in combinations(endpoints, 2):
        if first.port and first.port == second.port and _hosts_meet(first, second):
            raise ConfigError(
                "listeners",
                f"broker {one} would listen on {first} and broker {other} on {second}; put the ports of listeners and "
                f"metrics at least {len(plans)} apart, or name one for each broker, as in 127.0.0.1:9092,9192,9292",
            )


def _hosts_meet(first: Endpoint, second: Endpoint) -> bool:
    return first.host == second.host or first.host in _EVERYWHERE or second.host in _EVERYWHERE
