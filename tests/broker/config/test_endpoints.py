"""Where a broker listens, and what it tells clients."""

import pytest

from penstock.broker.config.endpoints import Endpoint, advertise
from penstock.broker.config.typed import BrokerConfig
from penstock.broker.config.values import ConfigError


def listeners(text: str, **others: str) -> list[str]:
    values = {name.replace("_", "."): value for name, value in others.items()}
    return [str(endpoint) for endpoint in BrokerConfig.parse({"listeners": text, **values}).listeners]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PLAINTEXT://127.0.0.1:9092", "PLAINTEXT://127.0.0.1:9092"),
        ("plaintext://broker-1.example_x.net:1", "PLAINTEXT://broker-1.example_x.net:1"),
        ("127.0.0.1:9092", "PLAINTEXT://127.0.0.1:9092"),
        ("localhost:0", "PLAINTEXT://localhost:0"),
        (":9092", "PLAINTEXT://:9092"),
        ("PLAINTEXT://:9092", "PLAINTEXT://:9092"),
        ("[::1]:9092", "PLAINTEXT://[::1]:9092"),
        ("PLAINTEXT://[fe80::1%eth0]:65535", "PLAINTEXT://[fe80::1%eth0]:65535"),
    ],
)
def test_a_listener_is_understood_with_and_without_a_name(text: str, expected: str) -> None:
    assert listeners(text) == [expected]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("127.0.0.1", "'127.0.0.1' is no address; write host:port or NAME://host:port"),
        ("PLAINTEXT://127.0.0.1:", "is no address"),
        ("127.0.0.1:port", "is no address"),
        ("127.0.0.1:-1", "is no address"),
        ("http://a/b:80", "is no address"),
        ("127.0.0.1:70000", "has port 70000; ports end at 65535"),
        ("fe80::1:2:3:9092", "put the IPv6 address in brackets"),
        ("[127.0.0.1]:9092", "'127.0.0.1' is no IPv6 address"),
        ("a b:9092", "characters that host names do not have"),
        ("a:1,b:2", "two listeners are called PLAINTEXT; give one another name"),
        ("a:1,", "has an empty item"),
        ("", "is empty; name at least one"),
        ("SSL://a:1", "SSL://a:1 needs SSL, which is not built yet; use a PLAINTEXT one"),
        ("INTERNAL://a:1", "add INTERNAL:PLAINTEXT to listener.security.protocol.map"),
    ],
)
def test_a_listener_that_cannot_be_is_refused_with_advice(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        listeners(text)
    assert str(caught.value).startswith("listeners: ")
    assert message in str(caught.value)


def test_listeners_may_have_names_of_their_own() -> None:
    names = "A:PLAINTEXT, B:plaintext"
    assert listeners("A://h:1,b://h:2", listener_security_protocol_map=names) == ["A://h:1", "B://h:2"]


def test_two_listeners_at_one_address_are_refused_unless_they_take_any_port() -> None:
    names = "A:PLAINTEXT,B:PLAINTEXT"
    with pytest.raises(ConfigError, match="h:1 is there twice"):
        listeners("A://h:1,B://h:1", listener_security_protocol_map=names)
    assert listeners("A://h:0,B://h:0", listener_security_protocol_map=names) == ["A://h:0", "B://h:0"]


@pytest.mark.parametrize(
    ("text", "message"), [("A", "'A' is not of the form NAME:PROTOCOL"), ("A:TLS", "no protocol TLS")]
)
def test_a_map_of_protocols_that_cannot_be_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        listeners("A://h:1", listener_security_protocol_map=text)


def test_the_listener_of_a_kraft_controller_is_left_out() -> None:
    assert listeners("PLAINTEXT://:9092,CONTROLLER://:9093", controller_listener_names="CONTROLLER") == [
        "PLAINTEXT://:9092"
    ]
    with pytest.raises(ConfigError, match="all of them are in controller"):
        listeners("CONTROLLER://:9093", controller_listener_names="CONTROLLER")


def test_clients_are_told_of_the_listeners_if_nothing_else_is_said() -> None:
    config = BrokerConfig.parse({"listeners": "127.0.0.1:9092"})
    assert config.advertised_listeners(bound_ports={}, machine="here") == (Endpoint("PLAINTEXT", "127.0.0.1", 9092),)


def test_clients_are_told_the_port_that_was_bound_and_the_name_of_the_machine() -> None:
    for host in ("", "0.0.0.0", "[::]"):
        config = BrokerConfig.parse({"listeners": f"{host}:0"})
        told = config.advertised_listeners(bound_ports={"PLAINTEXT": 40001}, machine="here")
        assert told == (Endpoint("PLAINTEXT", "here", 40001),)


def test_advertised_listeners_win_and_may_leave_the_port_open() -> None:
    config = BrokerConfig.parse({"listeners": ":0", "advertised.listeners": "PLAINTEXT://kafka.example:0"})
    told = config.advertised_listeners(bound_ports={"PLAINTEXT": 40001}, machine="here")
    assert told == (Endpoint("PLAINTEXT", "kafka.example", 40001),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0.0.0.0:9092", "nobody can connect to PLAINTEXT://0.0.0.0:9092"),
        ("PLAINTEXT://:9092", "nobody can connect"),
        ("OTHER://h:9092", "there is no listener OTHER, only PLAINTEXT"),
        ("h:1,h:2", "two listeners are called PLAINTEXT"),
        ("h", "'h' is no address"),
    ],
)
def test_advertised_listeners_that_cannot_be_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.parse({"advertised.listeners": text})
    assert str(caught.value).startswith("advertised.listeners: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("", False),
        ("10.0.0.1", False),
        ("h", False),
    ],
)
def test_only_this_machine_reaches_a_loopback_address(host: str, expected: bool) -> None:
    assert Endpoint("PLAINTEXT", host, 9092).is_loopback is expected


def test_other_endpoints_are_advertised_as_they_are() -> None:
    endpoint = Endpoint("PLAINTEXT", "h", 9092)
    assert advertise([endpoint], bound_ports={"PLAINTEXT": 1}, machine="here") == (endpoint,)


def metrics_listener(text: str) -> Endpoint | None:
    return BrokerConfig.parse({"penstock.metrics.listen": text}).metrics_listener


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9404", ("127.0.0.1", 9404)),
        ("localhost:0", ("localhost", 0)),
        (":1", ("", 1)),
        ("[::1]:2", ("::1", 2)),
    ],
)
def test_metrics_have_an_address_of_their_own(text: str, expected: tuple[str, int]) -> None:
    endpoint = metrics_listener(text)
    assert endpoint is not None
    assert (endpoint.name, endpoint.host, endpoint.port) == ("HTTP", *expected)


def test_metrics_are_served_nowhere_unless_somebody_says_where() -> None:
    assert BrokerConfig.parse({}).metrics_listener is None
    assert metrics_listener("") is None


@pytest.mark.parametrize("text", ["9404", "127.0.0.1", "127.0.0.1:70000", "fe80::1:2:3:9092", "a b:1"])
def test_an_address_for_metrics_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^penstock\.metrics\.listen: "):
        metrics_listener(text)


def test_brokers_use_the_first_listener_among_each_other_unless_another_is_named() -> None:
    text = {
        "listeners": "PLAINTEXT://127.0.0.1:1,INSIDE://127.0.0.1:2",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT",
    }
    assert BrokerConfig.parse(text).inter_broker_listener == "PLAINTEXT"
    assert BrokerConfig.parse({**text, "inter.broker.listener.name": "inside"}).inter_broker_listener == "INSIDE"
    with pytest.raises(ConfigError, match="there is no listener OUTSIDE for other brokers to connect to, only"):
        BrokerConfig.parse({**text, "inter.broker.listener.name": "OUTSIDE"})
    advertised = {"advertised.listeners": "PLAINTEXT://127.0.0.1:1", "inter.broker.listener.name": "INSIDE"}
    with pytest.raises(ConfigError, match="only PLAINTEXT"):
        BrokerConfig.parse({**text, **advertised})
