"""Three hosts of one machine, each a network namespace, joined by a bridge in a fourth, the hub, where clients live.

Addresses exist in these namespaces alone, and are of the range that is kept for examples (RFC 5737). A cut needs no
firewall: the host is told an Ethernet address for its peer that no host has, and what it sends there vanishes.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

HOSTS: Final = (1, 2, 3)
HUB_ADDRESS: Final = "192.0.2.254"
NOWHERE: Final = "02:00:00:00:00:99"
DEVICE: Final = "eth0"
BRIDGE: Final = "bridge"

Way: TypeAlias = tuple[int, int]
"""From one host to another: what travels this way can vanish while answers would still arrive."""


class NetworkError(Exception):
    """`ip` has failed: this takes root, and a machine that allows network namespaces."""


@dataclass(slots=True)
class Network:
    """`prefix` makes its namespaces different from those of other networks."""

    prefix: str
    cut_ways: set[Way] = field(default_factory=set)

    @property
    def hub(self) -> str:
        return f"{self.prefix}-hub"

    def host(self, number: int) -> str:
        return f"{self.prefix}-{number}"

    def namespaces(self) -> list[str]:
        return [self.hub, *(self.host(number) for number in HOSTS)]

    def command(self, namespace: str) -> list[str]:
        """What stands before a command that is to run there; the command has the process id of this one."""
        # `ip netns exec` would give it a mount namespace as well, in which disks stay mounted after they are unmounted.
        return ["nsenter", f"--net=/run/netns/{namespace}"]

    def build(self) -> None:
        for namespace in self.namespaces():
            ip("netns", "add", namespace)
            ip("-n", namespace, "link", "set", "lo", "up")
        ip("-n", self.hub, "link", "add", BRIDGE, "type", "bridge")
        ip("-n", self.hub, "address", "add", f"{HUB_ADDRESS}/24", "dev", BRIDGE)
        ip("-n", self.hub, "link", "set", BRIDGE, "up")
        for number in HOSTS:
            port, host = f"port{number}", self.host(number)
            ip("-n", self.hub, "link", "add", port, "type", "veth", "peer", "name", DEVICE, "netns", host)
            ip("-n", self.hub, "link", "set", port, "master", BRIDGE, "up")
            ip("-n", host, "address", "add", f"{address(number)}/24", "dev", DEVICE)
            ip("-n", host, "link", "set", DEVICE, "up")

    def remove(self) -> None:
        """End every process that is left in it, and delete it, as far as it is there."""
        for namespace in self.namespaces():
            if not Path("/run/netns", namespace).exists():
                continue
            for pid in ip("netns", "pids", namespace).split():
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    pass
            ip("netns", "delete", namespace)

    def cut(self, ways: Iterable[Way]) -> None:
        for sender, receiver in ways:
            route = ("-n", self.host(sender), "neigh", "replace", address(receiver))
            ip(*route, "lladdr", NOWHERE, "dev", DEVICE, "nud", "permanent")
            self.cut_ways.add((sender, receiver))

    def mend(self) -> None:
        """Every way is open again: hosts ask for each other's Ethernet address."""
        for sender, receiver in sorted(self.cut_ways):
            ip("-n", self.host(sender), "neigh", "delete", address(receiver), "dev", DEVICE)
        self.cut_ways.clear()


def address(number: int) -> str:
    return f"192.0.2.{number}"


def both_ways(one: int, other: int) -> set[Way]:
    return {(one, other), (other, one)}


def alone(host: int) -> set[Way]:
    """The others are the majority."""
    return {way for other in HOSTS if other != host for way in both_ways(host, other)}


def mute(host: int) -> set[Way]:
    """It hears the others, and what it says vanishes."""
    return {(host, other) for other in HOSTS if other != host}


def deaf(host: int) -> set[Way]:
    return {(other, host) for other in HOSTS if other != host}


def ring(step: int) -> set[Way]:
    """Each host can send to one other alone, to the next or (-1) the one before it: with itself that is a majority, and
    another for each of three hosts."""
    count = len(HOSTS)
    reached = {(host, HOSTS[(place + step) % count]) for place, host in enumerate(HOSTS)}
    return {(one, other) for one in HOSTS for other in HOSTS if one != other} - reached


@contextmanager
def network(record: Path) -> Iterator[Network]:
    """A network for as long as the block lasts. `record` says what has been made: it stays if this process is killed,
    and the next network begins with removing that. Two of them at a time need two records."""
    remove_left(record)
    made = Network(f"penstock-{os.getpid()}")
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps({"prefix": made.prefix}))
    try:
        made.build()
        yield made
    finally:
        remove_left(record)


def remove_left(record: Path) -> None:
    try:
        prefix = json.loads(record.read_text())["prefix"]
    except FileNotFoundError:
        return
    Network(prefix).remove()
    record.unlink()


def ip(*arguments: str) -> str:
    try:
        done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise NetworkError("ip is not installed: `tools/setup_debian.sh ip` does it") from None
    if done.returncode:
        raise NetworkError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout
