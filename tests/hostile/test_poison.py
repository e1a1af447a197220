"""Batches with a sound header and records that cannot be read."""

import pytest

from penstock.protocol.compression import Codec
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.produce import PartitionProduceResponse
from tests.broker.harness import Client, batch, in_loop, produce_request, produced, running
from tests.hostile.poison import BOMB_BYTES, KINDS, zstd_bomb
from tests.hostile.stage import beside_an_honest_client

MIB = 1024 * 1024


async def produce_poison(client: Client, topic: str, kind: str, version: int = 12) -> PartitionProduceResponse:
    return await client.produce(topic, KINDS[kind](), version=version)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("config", ["penstock.validate=records", "cleanup.policy=compact"])
@in_loop
async def test_poison_is_refused_by_a_topic_that_looks_at_records(config: str, kind: str) -> None:
    async with beside_an_honest_client() as stage:
        attacker = await stage.attacker()
        name, _, value = config.partition("=")
        await attacker.create_topic("target", configs={name: value})
        # Both generations of the request: the quick way takes one of them, and refuses nothing itself.
        for version in (8, 12):
            answer = await produce_poison(attacker, "target", kind, version)
            assert answer.error_code == ErrorCode.INVALID_RECORD
            assert answer.error_message
        assert stage.node.partition("target").log.end_offset == 0


@pytest.mark.parametrize("kind", ["absurd key length", "count too high", "negative length", "garbage"])
@in_loop
async def test_the_refusal_names_the_record(kind: str) -> None:
    async with running({"penstock.validate": "records"}) as node:
        client = await node.connect()
        await client.create_topic("target")
        answer = await produce_poison(client, "target", kind)
        [error] = answer.record_errors
        assert error.batch_index == (3 if kind == "count too high" else 0)
        assert f"record {error.batch_index}: " in (answer.error_message or "")


@in_loop
async def test_a_topic_that_checks_headers_alone_takes_what_it_is_given() -> None:
    # What that risks is said beside the config.
    async with running() as node:
        client = await node.connect()
        await client.create_topic("target")
        for kind in ("garbage", "count too low", "broken zstd"):
            assert (await produce_poison(client, "target", kind)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("count", [1, 3, 5_000])
@in_loop
async def test_sound_batches_pass_however_large(codec: Codec, count: int) -> None:
    async with running({"penstock.validate": "records"}) as node:
        client = await node.connect()
        await client.create_topic("target")
        values = [b"value %d" % number for number in range(count)]
        for version in (8, 12):
            answer = await client.produce("target", batch(*values, codec=codec), version=version)
            assert answer.error_code == ErrorCode.NONE, answer.error_message
        assert await client.values("target") == values * 2


@in_loop
async def test_a_batch_and_what_follows_it_keep_their_order_while_it_is_checked() -> None:
    async with running({"penstock.validate": "records"}) as node:
        client = await node.connect()
        await client.create_topic("target")
        large = [b"large"] * 5_000
        client.send_together(
            (produce_request("target", batch(*large)), 12),
            (produce_request("target", batch(b"small")), 12),
            (produce_request("target", batch(*large, codec=Codec.ZSTD)), 12),
            (produce_request("target", batch(b"last")), 12),
        )
        offsets = [produced(await client.reply()).base_offset for _ in range(4)]
        assert offsets == [0, 5_000, 5_001, 10_001]


@in_loop
async def test_bombs_take_bounded_memory_and_hold_up_no_other_client() -> None:
    bomb = zstd_bomb()
    assert len(bomb) < BOMB_BYTES // 10_000
    async with beside_an_honest_client() as stage:
        attackers = [await stage.attacker() for _ in range(20)]
        await attackers[0].create_topic("target", configs={"cleanup.policy": "compact"})
        async with stage.measured(calls=False, memory=True) as cost:
            for attacker in attackers:
                attacker.send(produce_request("target", bomb), 12)
            for attacker in attackers:
                assert produced(await attacker.reply()).error_code == ErrorCode.INVALID_RECORD
        # Two at a time, each with the last two sizes of a buffer that doubles up to 64 MiB.
        assert cost.peak_bytes < 2 * 3 * 64 * MIB
        assert cost.turns_between_answers < 100
        assert cost.turns > 20
