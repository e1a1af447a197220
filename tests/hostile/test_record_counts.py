"""Batches that lie about how many records they hold."""

import random

import pytest

from penstock.protocol.batch import MIN_RECORD_BYTES
from penstock.protocol.compression import MAX_DECOMPRESSED_BYTES, Codec
from penstock.protocol.error_codes import ErrorCode
from tests.broker.harness import batch, in_loop, produce_request, produced, records_of, running, values_of
from tests.hostile.stage import beside_an_honest_client
from tests.storage.store import claiming


@pytest.mark.parametrize("codec", Codec)
@in_loop
async def test_a_lying_record_count_never_harms_a_log(codec: Codec) -> None:
    async with beside_an_honest_client() as stage:
        attacker = await stage.attacker()
        await attacker.create_topic("target")
        await attacker.create_topic("other")
        kept = await attacker.produce("target", batch(b"kept"))
        assert kept.error_code == ErrorCode.NONE
        # Several in one turn, between true ones of the same partition and of another.
        for _ in range(5):
            lies = [(produce_request("target", claiming(batch(b"x", codec=codec), 2**31 - 1)), 12)] * 2
            true = [(produce_request(topic, batch(b"true")), 12) for topic in ("target", "other")]
            attacker.send_together(*lies, *true, *lies)
            codes = [produced(await attacker.reply()).error_code for _ in range(6)]
            refused = ErrorCode.INVALID_RECORD
            assert codes == [refused, refused, ErrorCode.NONE, ErrorCode.NONE, refused, refused]
        await stage.honest.answers_more(3)
        assert await attacker.values("target") == [b"kept"] + [b"true"] * 5


@in_loop
async def test_the_largest_count_that_is_believed_fills_segments_and_harms_nothing() -> None:
    # A few compressed bytes can hold millions of records: what some batches claim in all passes what a segment has.
    async with running() as node:
        client = await node.connect()
        await client.create_topic("target")
        zeros = batch(*[bytes(2_000)] * 4, random.Random(1).randbytes(2_100), codec=Codec.ZSTD)
        count = MAX_DECOMPRESSED_BYTES // MIN_RECORD_BYTES
        largest = claiming(zeros, count)
        total = 2**31 // count + 2
        for _ in range(total):
            client.send(produce_request("target", largest, acks=1), 12)
        for number in range(total):
            assert produced(await client.reply()).base_offset == number * count
        assert (await client.produce("target", batch(b"after"))).base_offset == total * count
        assert len(node.partition("target").log.segments) == 2
        await node.crash()
        client = await node.connect()
        assert values_of(records_of(await client.fetch("target", total * count))) == [b"after"]
