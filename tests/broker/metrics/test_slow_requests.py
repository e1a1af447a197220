"""The log of slow requests."""

import logging
import math
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.broker.log_rates import BURST
from penstock.broker.metrics.slow_requests import SlowRequests
from penstock.broker.network.call import Call
from penstock.protocol.apis import api
from penstock.protocol.schemas.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from tests.broker.harness import PRODUCE_VERSION, GatedFiles, batch, in_loop, produce_request, running, until

BROKER = 4


LOGGER = "penstock.broker.metrics.slow_requests"


def slow_lines(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == LOGGER]


def a_call() -> Call:
    call = Call(api(0), 9, 1, "billing", memoryview(bytes(100)))
    connection: Any = SimpleNamespace(peer="10.0.0.1:5000")
    call.connection = connection
    return call


def told(record: logging.LogRecord) -> dict[str, Any]:
    names = ("api", "version", "client_id", "peer", "bytes", "ms", "left_out")
    return {name: vars(record)[name] for name in names if name in vars(record)}


def test_a_line_says_who_asked_for_what_and_how_long_it_took(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    slow = SlowRequests()
    slow.add(a_call(), 1.23456)
    [line] = slow_lines(caplog)
    assert (line.levelname, line.getMessage()) == ("INFO", "slow request")
    assert told(line) == {
        "api": "Produce",
        "version": 9,
        "client_id": "billing",
        "peer": "10.0.0.1:5000",
        "bytes": 100,
        "ms": 1234.6,
    }


def test_many_slow_requests_make_few_lines_and_the_next_one_says_how_many_were_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    now = 50.0
    slow = SlowRequests(lambda: now)
    for _ in range(1000):
        slow.add(a_call(), 2.0)
    assert len(slow_lines(caplog)) == BURST
    assert slow.total == 1000
    now += 2.0
    slow.add(a_call(), 2.0)
    slow.add(a_call(), 2.0)
    assert [told(line).get("left_out") for line in slow_lines(caplog)[BURST:]] == [1000 - BURST, None]


def test_zero_turns_the_log_off() -> None:
    slow = SlowRequests()
    assert slow.threshold_seconds == math.inf
    slow.set_threshold_ms(250)
    assert slow.threshold_seconds == 0.25
    slow.set_threshold_ms(0)
    assert slow.threshold_seconds == math.inf


@in_loop
async def test_a_produce_that_waits_for_the_disk_is_named(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    files = GatedFiles()
    async with running(files=files) as node:
        client = await node.connect(client_id="billing")
        await client.create_topic("orders")
        requests = node.broker.services.meters.requests
        files.gate.clear()
        client.send(produce_request("orders", batch(b"a")), PRODUCE_VERSION)
        await until(lambda: files.waiting)
        # However long it takes from here, it is longer than this.
        requests.slow.threshold_seconds = 0.0
        files.gate.set()
        await client.reply()
        assert requests.slow.total == 1
        [line] = slow_lines(caplog)
        facts = told(line)
        assert (facts["api"], facts["version"], facts["client_id"]) == ("Produce", PRODUCE_VERSION, "billing")
        [produce] = [meter for meter in requests.all() if meter.api.name == "Produce"]
        assert facts["bytes"] == produce.bytes_in
        assert facts["peer"].startswith("127.0.0.1:")


@in_loop
async def test_the_threshold_can_change_while_the_broker_runs() -> None:
    async with running({"penstock.slow.request.ms": "70"}) as node:
        slow = node.broker.services.meters.requests.slow
        assert slow.threshold_seconds == 0.07
        client = await node.connect()
        config = IncrementalAlterConfigsRequestAlterableConfig(name="penstock.slow.request.ms", value="30")
        resource = IncrementalAlterConfigsRequestAlterConfigsResource(
            resource_type=BROKER, resource_name="", configs=[config]
        )
        await client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert slow.threshold_seconds == 0.03
        await node.restart()
        assert node.broker.services.meters.requests.slow.threshold_seconds == 0.03
