"""What handlers are given: ids, topics, addresses, time, and a config that may change."""

import secrets

import pytest

from penstock.machines.decisions import Refused
from penstock.protocol.error_codes import ErrorCode
from tests.broker.harness import FakeClock, in_loop, running


@in_loop
async def test_topic_ids_are_drawn_that_nobody_has() -> None:
    async with running() as node:
        drawn = {node.broker.services.cluster.draw_topic_id() for _ in range(100)}
        assert len(drawn) == 100
        assert all(len(topic_id) == 16 and topic_id[:8] != bytes(8) for topic_id in drawn)
        assert all(0 < node.broker.services.draw_session_id() < 1 << 31 for _ in range(100))


@in_loop
async def test_a_topic_id_that_is_taken_or_reserved_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as node:
        client = await node.connect()
        taken = (await client.create_topic("orders")).topic_id
        free = b"f" * 16
        drawn = iter([taken, bytes(15) + b"1", free])
        monkeypatch.setattr(secrets, "token_bytes", lambda size: next(drawn))
        assert node.broker.services.cluster.draw_topic_id() == free


@in_loop
async def test_member_ids_are_drawn_that_nobody_has() -> None:
    async with running() as node:
        assert len({node.broker.services.draw_member_id() for _ in range(100)}) == 100


@in_loop
async def test_time_is_the_clocks() -> None:
    clock = FakeClock()
    async with running(clock=clock) as node:
        clock.advance(5)
        assert node.broker.services.now_ms() == clock.now_ms()


@in_loop
async def test_a_topic_is_created_with_the_defaults_or_it_is_said_why_not() -> None:
    async with running({"num.partitions": "3"}) as node:
        services = node.broker.services
        assert await services.create_topic("orders") is None
        assert len(services.image.topics["orders"].partitions) == 3
        refused = await services.create_topic("orders")
        assert isinstance(refused, Refused)
        assert refused.code == ErrorCode.TOPIC_ALREADY_EXISTS
        assert services.check_topic_name("orders") is None
        assert services.check_topic_name("or ders") == ErrorCode.INVALID_TOPIC_EXCEPTION


@in_loop
async def test_a_config_that_was_changed_counts_for_the_next_request() -> None:
    async with running({"fetch.max.bytes": "1048576"}) as node:
        services = node.broker.services
        assert services.fetch_max_bytes == 1048576
        services.configure(services.config.with_dynamic(cluster={"penstock.slow.request.ms": "7"}))
        assert services.fetch_max_bytes == 1048576
        assert services.meters.requests.slow.threshold_seconds == 0.007
