"""Endpoints say where a broker listens, and which addresses it gives to clients."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Final

from penstock.broker.config.values import ConfigError, ConfigValue

PLAINTEXT: Final = "PLAINTEXT"
_PROTOCOLS: Final = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_EVERYWHERE: Final = ("", "0.0.0.0", "::")
_ENDPOINT: Final = re.compile(r"(?:(?P<name>[A-Za-z0-9_.-]+)://)?(?P<host>\[[^\]]*\]|[^\[\]:/]*):(?P<port>[0-9]{1,5})")


@dataclass(slots=True, frozen=True)
class Endpoint:
    """A listener's name and address. No host means every address of the machine, port 0 any free port."""

    name: str
    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_listeners(values: Mapping[str, ConfigValue]) -> tuple[Endpoint, ...]:
    """The listeners to open. Those of a KRaft controller are left out."""
    endpoints = _parse("listeners", values["listeners"])
    addresses = [(endpoint.host, endpoint.port) for endpoint in endpoints if endpoint.port]
    for address in addresses:
        if addresses.count(address) > 1:
            raise ConfigError(
                "listeners", f"{address[0]}:{address[1]} is there twice; give every listener its own port"
            )
    opened = _without_controllers(endpoints, values)
    if not opened:
        raise ConfigError(
            "listeners",
            "all of them are in controller.listener.names; add one for clients",
            also=("controller.listener.names",),
        )
    _refuse_unsafe(opened, values["listener.security.protocol.map"])
    return opened


def parse_advertised(values: Mapping[str, ConfigValue], listeners: Sequence[Endpoint]) -> tuple[Endpoint, ...] | None:
    """The endpoints of `advertised.listeners`; None if it is not set."""
    if values["advertised.listeners"] is None:
        return None
    endpoints = _without_controllers(_parse("advertised.listeners", values["advertised.listeners"]), values)
    names = [listener.name for listener in listeners]
    for endpoint in endpoints:
        if endpoint.name not in names:
            raise ConfigError("advertised.listeners", f"there is no listener {endpoint.name}, only {', '.join(names)}")
        if endpoint.host in _EVERYWHERE:
            raise ConfigError(
                "advertised.listeners", f"nobody can connect to {endpoint}; put a name or address of this machine there"
            )
    return endpoints


def parse_inter_broker_listener(
    values: Mapping[str, ConfigValue], listeners: Sequence[Endpoint], advertised: Sequence[Endpoint] | None
) -> str:
    """The name of the listener that brokers use among each other."""
    name = values["inter.broker.listener.name"]
    known = [endpoint.name for endpoint in advertised or listeners]
    if name is None:
        return known[0]
    assert isinstance(name, str)
    if name.upper() not in known:
        raise ConfigError(
            "inter.broker.listener.name",
            f"there is no listener {name} for other brokers to connect to, only {', '.join(known)}",
            also=("listeners", "advertised.listeners"),
        )
    return name.upper()


def parse_metrics_listener(values: Mapping[str, ConfigValue]) -> Endpoint | None:
    """The endpoint where metrics are served, if there is one."""
    text = values["penstock.metrics.listen"]
    assert isinstance(text, str)
    return replace(_parse_one("penstock.metrics.listen", text), name="HTTP") if text else None


def open_listener_problem(listeners: Iterable[Endpoint]) -> str | None:
    """Why a broker without authentication may not listen there unless its operator insists; None if it may."""
    for listener in listeners:
        if not listener.is_loopback:
            return (
                f"listening on {listener} would let anyone who can reach it in, as there is no authentication yet; "
                "listen on 127.0.0.1, or say --insecure if the network is closed"
            )
    return None


def advertise(endpoints: Sequence[Endpoint], *, bound_ports: Mapping[str, int], machine: str) -> tuple[Endpoint, ...]:
    """Endpoints that a client can connect to: any port becomes the one that was bound for that listener, every
    address becomes the machine's name."""
    return tuple(
        replace(
            endpoint,
            host=machine if endpoint.host in _EVERYWHERE else endpoint.host,
            port=endpoint.port or bound_ports[endpoint.name],
        )
        for endpoint in endpoints
    )


def _parse(setting: str, items: ConfigValue) -> tuple[Endpoint, ...]:
    assert isinstance(items, tuple)
    endpoints = tuple(_parse_one(setting, item) for item in items)
    names = [endpoint.name for endpoint in endpoints]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                setting,
                f"two listeners are called {name}; give one another name, as in INTERNAL://host:port, "
                "and say in listener.security.protocol.map what it stands for",
            )
    return endpoints


def _parse_one(setting: str, text: str) -> Endpoint:
    parts = _ENDPOINT.fullmatch(text)
    if parts is None:
        advice = "put the IPv6 address in brackets" if text.count(":") > 3 and "[" not in text else ""
        raise ConfigError(setting, f"{text!r} is no address; {advice or 'write host:port or NAME://host:port'}")
    host, port = parts["host"], int(parts["port"])
    if port > 65535:
        raise ConfigError(setting, f"{text!r} has port {port}; ports end at 65535")
    if host.startswith("["):
        host = host[1:-1]
        if not _is_ipv6(host):
            raise ConfigError(setting, f"{text!r} has brackets, but {host!r} is no IPv6 address")
    elif not re.fullmatch(r"[A-Za-z0-9._-]*", host):
        raise ConfigError(setting, f"{text!r} has a host name with characters that host names do not have")
    return Endpoint((parts["name"] or PLAINTEXT).upper(), host, port)


def _is_ipv6(host: str) -> bool:
    try:
        return ip_address(host).version == 6
    except ValueError:
        return False


def _without_controllers(endpoints: tuple[Endpoint, ...], values: Mapping[str, ConfigValue]) -> tuple[Endpoint, ...]:
    names = values["controller.listener.names"]
    assert isinstance(names, tuple)
    controllers = {name.upper() for name in names}
    return tuple(endpoint for endpoint in endpoints if endpoint.name not in controllers)


def _refuse_unsafe(endpoints: Sequence[Endpoint], text: ConfigValue) -> None:
    """A listener that promises encryption or authentication must not be opened without it."""
    protocols = _parse_protocols(text)
    for endpoint in endpoints:
        protocol = protocols.get(endpoint.name)
        if protocol is None:
            raise ConfigError(
                "listeners",
                f"nothing says what {endpoint.name} stands for; "
                f"add {endpoint.name}:PLAINTEXT to listener.security.protocol.map",
                also=("listener.security.protocol.map",),
            )
        if protocol != PLAINTEXT:
            raise ConfigError(
                "listeners",
                f"{endpoint} needs {protocol}, which is not built yet; use a PLAINTEXT one",
                also=("listener.security.protocol.map",),
            )


def _parse_protocols(text: ConfigValue) -> dict[str, str]:
    assert isinstance(text, str)
    protocols = {}
    for item in filter(None, (item.strip() for item in text.split(","))):
        name, colon, protocol = item.partition(":")
        protocol = protocol.strip().upper()
        if not colon:
            raise ConfigError("listener.security.protocol.map", f"{item!r} is not of the form NAME:PROTOCOL")
        if protocol not in _PROTOCOLS:
            raise ConfigError(
                "listener.security.protocol.map", f"there is no protocol {protocol}; use {', '.join(_PROTOCOLS)}"
            )
        protocols[name.strip().upper()] = protocol
    return protocols
