"""Whether records have keys: found at once in small batches, in turns in large ones."""

import asyncio
import struct

import pytest

from penstock.broker.record_keys import BYTES_AT_ONCE, MAX_NAMED, RECORDS_AT_ONCE, Keys, look_at_once, look_in_turns
from penstock.protocol.batch import stamp_crc
from penstock.protocol.compression import Codec
from penstock.protocol.records import NewRecord, build
from tests.broker.harness import in_loop


def keyed(*keys: bytes | None, value: bytes = b"v", codec: Codec = Codec.NONE) -> memoryview:
    return memoryview(build([NewRecord(value, key=key) for key in keys], codec=codec))


@pytest.mark.parametrize("codec", Codec)
def test_records_without_a_key_are_named_by_their_places(codec: Codec) -> None:
    assert look_at_once(keyed(b"a", b"", b"c", codec=codec)) == Keys()
    found = look_at_once(keyed(b"a", None, b"c", None, codec=codec))
    assert found == Keys([1, 3], 2)
    assert not found.are_complete


def test_what_takes_longer_than_a_turn_is_left_to_the_other_way() -> None:
    many = [b"k"] * (RECORDS_AT_ONCE + 1)
    assert look_at_once(keyed(*many[1:])) == Keys()
    assert look_at_once(keyed(*many)) is None
    assert look_at_once(keyed(b"k", value=bytes(BYTES_AT_ONCE))) is None
    # It is small, and becomes large.
    assert look_at_once(keyed(b"k", value=bytes(BYTES_AT_ONCE), codec=Codec.ZSTD)) is None


@pytest.mark.parametrize("codec", Codec)
def test_the_other_way_finds_the_same(codec: Codec) -> None:
    @in_loop
    async def run() -> None:
        keys = [b"k", None] * 500
        found = await look_in_turns(keyed(*keys, codec=codec))
        assert found == Keys(list(range(1, 2 * MAX_NAMED, 2)), 500)
        assert await look_in_turns(keyed(*[b"k"] * 1000, codec=codec)) == Keys()

    run()


@in_loop
async def test_others_get_their_turns_between() -> None:
    turns = 0

    async def go_round() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    going = asyncio.create_task(go_round())
    await look_in_turns(keyed(*[b"k"] * (RECORDS_AT_ONCE * 20)))
    assert turns >= 20
    going.cancel()
    await asyncio.gather(going, return_exceptions=True)


@in_loop
async def test_records_that_cannot_be_read_are_damage() -> None:
    data = bytearray(keyed(b"a", b"b"))
    struct.pack_into(">B", data, 61, 0x7F)
    stamp_crc(data)
    assert look_at_once(memoryview(data)) is None
    found = await look_in_turns(memoryview(data))
    assert found.damage is not None
    assert "length" in found.damage
    assert not found.are_complete


@pytest.mark.parametrize("size", [0, 10, 60])
def test_what_is_no_batch_at_all_is_for_others_to_refuse(size: int) -> None:
    assert look_at_once(memoryview(bytes(size))) is None
