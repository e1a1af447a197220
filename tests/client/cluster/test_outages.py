"""A client whose broker is gone says so: once, then rarely, and when it is back."""

import logging

import pytest

from penstock.client import Admin, ConnectionEvent, Consumer
from penstock.client.cluster.outages import PAUSE_SECONDS, REPEAT_SECONDS, Outages
from penstock.client.metadata import Address
from penstock.protocol.schemas.metadata import MetadataRequest
from penstock.testing import Broker
from tests.client.peer import HANG_UP, closed_port, peer
from tests.waiting import in_loop, turns, until

BROKER = Address("127.0.0.1", 9092)


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(each.levelname, each.getMessage()) for each in caplog.records if "outages" in each.name]


@pytest.fixture(autouse=True)
def all_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "penstock.client")


def test_a_broker_that_is_lost_is_warned_of_once_then_rarely_with_how_long_and_reported_when_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outages = Outages("shop")
    for second in range(2 * int(REPEAT_SECONDS) + 1):
        outages.lost(BROKER, "refused", second)
    outages.back(BROKER, 130.0)
    assert lines(caplog) == [
        ("WARNING", "client 'shop' has no connection to broker 127.0.0.1:9092 and tries again: refused"),
        ("WARNING", "client 'shop' has not reached broker 127.0.0.1:9092 for 60 s and tries again: refused"),
        ("WARNING", "client 'shop' has not reached broker 127.0.0.1:9092 for 120 s and tries again: refused"),
        ("INFO", "client 'shop' has reached broker 127.0.0.1:9092 again, after 130.0 s"),
    ]


def test_a_broker_that_comes_and_goes_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    outages = Outages()
    for tenth in range(100):
        outages.lost(BROKER, "reset", tenth / 10)
        outages.back(BROKER, tenth / 10)
    assert [level for level, _ in lines(caplog)] == ["WARNING", "INFO"]
    outages.lost(BROKER, "reset", PAUSE_SECONDS)
    assert [level for level, _ in lines(caplog)] == ["WARNING", "INFO", "WARNING"]


def test_an_outage_that_began_in_the_pause_between_warnings_is_warned_of_after_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outages = Outages()
    outages.lost(BROKER, "reset", 0.0)
    outages.back(BROKER, 1.0)
    outages.lost(BROKER, "reset", 2.0)
    assert len(lines(caplog)) == 2
    outages.lost(BROKER, "reset", PAUSE_SECONDS)
    assert len(lines(caplog)) == 3


def test_a_callback_hears_of_the_loss_and_of_the_return_each_once() -> None:
    heard: list[ConnectionEvent] = []
    outages = Outages(listener=heard.append)
    outages.back(BROKER, 0.0)
    for second in range(3):
        outages.lost(BROKER, "refused", second)
    outages.back(BROKER, 5.0)
    assert heard == [
        ConnectionEvent(address="127.0.0.1:9092", is_connected=False, error="refused"),
        ConnectionEvent(address="127.0.0.1:9092", is_connected=True, outage_seconds=5.0),
    ]


def test_a_callback_that_fails_is_logged_and_harms_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: ConnectionEvent) -> None:
        raise KeyError("orders")

    outages = Outages(listener=fail)
    outages.lost(BROKER, "refused", 0.0)
    assert outages.seconds(2.0) == {"127.0.0.1:9092": 2.0}
    assert any(level == "ERROR" and "on_connection" in text for level, text in lines(caplog))


def test_brokers_that_the_cluster_no_longer_has_are_forgotten() -> None:
    outages = Outages()
    outages.lost(BROKER, "refused", 0.0)
    outages.keep([Address("127.0.0.1", 9093)])
    assert outages.seconds(1.0) == {}


@in_loop
async def test_a_consumer_whose_broker_dies_warns_and_reports_its_return(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[ConnectionEvent] = []
    with Broker(storage="memory") as broker:
        broker.create_topic("orders")
        address = broker.bootstrap
        consumer = Consumer("orders", bootstrap_servers=address, on_connection=heard.append)
        async with consumer:
            await consumer.poll(timeout_ms=10)
            await until(lambda: consumer.stats().requests_in_flight)
            broker.kill()
            await until(lambda: consumer.stats().unreachable)
            assert list(consumer.stats().unreachable) == [address]
            assert address in (consumer.stats().last_error or "")
            broker.start()
            await until(lambda: not consumer.stats().unreachable)
    assert [each.is_connected for each in heard] == [False, True]
    assert [level for level, _ in lines(caplog)] == ["WARNING", "INFO"]


@in_loop
async def test_a_connection_that_is_lost_with_a_request_under_way_is_an_outage_until_the_next_is_open() -> None:
    heard: list[ConnectionEvent] = []
    async with peer(orders=[0]) as broker, Admin(broker.address, on_connection=heard.append) as admin:
        await admin.topic("orders")
        answer = broker.answers[MetadataRequest]

        def hang_up_once(_: MetadataRequest) -> object:
            broker.answers[MetadataRequest] = answer
            return HANG_UP

        broker.answers[MetadataRequest] = hang_up_once
        assert (await admin.topic("orders")).name == "orders"
        assert [each.is_connected for each in heard] == [False, True]
        assert "closed the connection" in (heard[0].error or "")


@in_loop
async def test_an_idle_connection_that_a_broker_closes_is_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    async with peer(orders=[0]) as broker, Admin(broker.address) as admin:
        await admin.topic("orders")
        broker.connections[0].hang_up()
        await until(lambda: admin.stats().connections == 0)
        await turns()
        assert admin.stats().unreachable == {}
        assert (await admin.topic("orders")).name == "orders"
    assert lines(caplog) == []


@in_loop
async def test_a_client_that_fails_fast_raises_the_error_and_logs_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    address = f"127.0.0.1:{closed_port()}"
    async with Admin(address, fail_fast=True) as admin:
        with pytest.raises(Exception, match="no broker can be reached"):
            await admin.topics()
        assert "cannot connect" in (admin.stats().last_error or "")
    assert lines(caplog) == []
