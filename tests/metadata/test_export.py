"""The file that outlives the store, and what is no such file."""

import struct
import zlib

import msgspec
import pytest

from penstock.machines.cluster_records import (
    BrokerRegistered,
    ConfigChanged,
    PartitionsCreated,
    ProducerIdsAllocated,
    Record,
    TopicCreated,
    encode,
)
from penstock.metadata.export import VERSION, Export, decode_export, encode_export, read_export
from penstock.metadata.memory import MemoryStore, SharedMetadata
from penstock.metadata.store import StoreRefusedError
from tests.waiting import in_loop

ORDERS = bytes(15) + b"\1"
RECORDS: list[Record] = [
    BrokerRegistered(0, 12, {"PLAINTEXT": ("127.0.0.1", 9092)}, "rack", "folder-0", "folder-0"),
    TopicCreated(ORDERS, "orders", {"retention.ms": "1"}),
    PartitionsCreated(ORDERS, 0, ((0,), (0,))),
    ConfigChanged("cluster", "", {"log.retention.ms": "5"}),
    ProducerIdsAllocated(3000),
]


async def exported() -> Export:
    store = MemoryStore(SharedMetadata())
    await store.open()
    epoch = await store.take_controller_lease(0)
    assert epoch is not None
    await store.append(epoch, 1, encode(RECORDS, controller_epoch=epoch, index=1))
    export = await read_export(store, now_ms=1234)
    assert export.cluster_id == await store.cluster_id()
    await store.close()
    return export


@in_loop
async def test_an_export_comes_back_as_it_was() -> None:
    export = await exported()
    assert (export.time_ms, export.index, export.controller_epoch) == (1234, 1, 1)
    assert export.image.topics["orders"].topic_id == ORDERS
    assert decode_export(encode_export(export), where="file") == export


@in_loop
async def test_the_secret_of_the_cluster_is_not_in_it() -> None:
    shared = SharedMetadata()
    store = MemoryStore(shared)
    await store.open()
    assert shared.secret not in encode_export(await read_export(store, now_ms=0))
    await store.close()


@in_loop
async def test_an_export_that_is_damaged_anywhere_is_refused() -> None:
    data = encode_export(await exported())
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        with pytest.raises(StoreRefusedError, match=r"file is (damaged|no export)"):
            decode_export(bytes(damaged), where="file")
    for length in range(len(data)):
        with pytest.raises(StoreRefusedError, match=r"file is (damaged|no export)"):
            decode_export(data[:length], where="file")


@in_loop
async def test_one_of_a_newer_format_is_refused_with_what_to_do() -> None:
    body = encode_export(await exported())[10:]
    newer = (VERSION + 1).to_bytes(2, "big")
    with pytest.raises(StoreRefusedError, match="file has format 2, and this Penstock reads up to 1: use the one"):
        decode_export(b"PSEX" + newer + struct.pack(">I", zlib.crc32(newer + body)) + body, where="file")


def made(snapshot: bytes) -> bytes:
    version, body = VERSION.to_bytes(2, "big"), msgspec.msgpack.encode(["9.9.9", "id", 0, snapshot, "more"])
    return b"PSEX" + version + struct.pack(">I", zlib.crc32(version + body)) + body


def test_one_with_records_of_a_newer_penstock_is_refused() -> None:
    assert decode_export(made(encode([], controller_epoch=0, index=7)), where="file").index == 7
    body = msgspec.msgpack.encode(["9.9.9", 0, 7, [["topic:9", 1]]])
    with pytest.raises(StoreRefusedError, match=r"'topic' of version 9, written by Penstock 9\.9\.9"):
        decode_export(made(zlib.crc32(body).to_bytes(4, "big") + body), where="file")
    with pytest.raises(StoreRefusedError, match="is damaged"):
        decode_export(made(b"nonsense"), where="file")
