"""What the user hears when partitions come and go."""

import asyncio
from typing import Any

import pytest

from penstock.client.metadata import TopicPartition
from penstock.testing import Broker
from tests.client.consuming import Stage, balanced, polling_until, read
from tests.waiting import in_loop


@pytest.mark.parametrize("is_async", [False, True])
@in_loop
async def test_an_eager_group_takes_everything_back_before_it_shares_out_anew(broker: Broker, is_async: bool) -> None:
    stage = Stage(broker, partitions=4)
    events: list[tuple[str, list[int]]] = []

    def note(what: str) -> Any:
        def tell(keys: frozenset[TopicPartition]) -> None:
            events.append((what, sorted(key.partition for key in keys)))

        async def tell_later(keys: frozenset[TopicPartition]) -> None:
            await asyncio.sleep(0)
            tell(keys)

        return tell_later if is_async else tell

    async with stage.consumer(assignors=["range"], client_id="a") as one:
        one.subscribe(stage.topic, on_assigned=note("assigned"), on_revoked=note("revoked"), on_lost=note("lost"))
        await balanced(stage, one)
        async with stage.consumer(assignors=["range"], client_id="b") as two:
            await balanced(stage, one, two)
        await balanced(stage, one)
    every = [0, 1, 2, 3]
    assert events == [
        *(("assigned", every), ("revoked", every)),
        *(("assigned", [0, 1]), ("revoked", [0, 1])),
        *(("assigned", every), ("revoked", every)),
    ]


@in_loop
async def test_a_cooperative_group_takes_back_only_what_goes_to_others(broker: Broker) -> None:
    stage = Stage(broker, partitions=4)
    events: list[tuple[str, int]] = []
    assignors = ["cooperative-sticky"]
    async with stage.consumer(assignors=assignors) as one:
        one.subscribe(
            stage.topic,
            on_assigned=lambda keys: events.append(("assigned", len(keys))),
            on_revoked=lambda keys: events.append(("revoked", len(keys))),
        )
        await balanced(stage, one)
        kept = one._subscription.cursors.copy()
        async with stage.consumer(assignors=assignors) as two:
            await balanced(stage, one, two)
            assert all(kept[key] is cursor for key, cursor in one._subscription.cursors.items())
        await balanced(stage, one)
    assert [event for event in events if event[1]] == [("assigned", 4), ("revoked", 2), ("assigned", 2), ("revoked", 4)]


@in_loop
async def test_what_a_callback_raises_the_poll_raises_and_goes_on(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.fill(3)

    def fail(_: object) -> None:
        raise RuntimeError("the cache is cold")

    async with stage.consumer() as consumer:
        consumer.subscribe(stage.topic, on_assigned=fail)
        with pytest.raises(RuntimeError, match="the cache is cold"):
            await polling_until(lambda: False, consumer)
        assert len(await read(consumer, 3)) == 3
