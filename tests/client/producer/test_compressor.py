"""Small batches are compressed at once, large ones in a thread that ends with the compressor."""

import asyncio
import threading

import pytest

from penstock.client.producer.accumulator import Batch
from penstock.client.producer.compressor import THREAD_BYTES, Compressor
from penstock.client.settings import ProducerSettings
from penstock.protocol.batch import read_header
from penstock.protocol.compression import Codec
from penstock.protocol.errors import EncodeError
from tests.waiting import in_loop


def closed_batch(size: int) -> Batch:
    batch = Batch("orders", 0, 0.0)
    batch.append(None, bytes(size), 1, None, size)
    batch.close()
    return batch


def never(error: Exception | None) -> None:
    raise AssertionError("nothing is compressed in a thread")


@in_loop
async def test_without_a_codec_nothing_is_done() -> None:
    compressor, batch = Compressor(ProducerSettings()), closed_batch(THREAD_BYTES)
    compressor.begin(batch, never)

    assert compressor.is_compressed(batch, never)
    assert read_header(batch.data).codec is Codec.NONE


@in_loop
async def test_a_small_batch_is_compressed_at_once() -> None:
    compressor, batch = Compressor(ProducerSettings(compression_type="lz4")), closed_batch(1_000)
    compressor.begin(batch, never)

    assert compressor.is_compressed(batch, never)
    assert read_header(batch.data).codec is Codec.LZ4


@in_loop
async def test_a_large_batch_is_compressed_once_in_a_thread() -> None:
    compressor, batch = Compressor(ProducerSettings(compression_type="zstd")), closed_batch(THREAD_BYTES)
    done: asyncio.Queue[Exception | None] = asyncio.Queue()
    before = threading.active_count()
    compressor.begin(batch, done.put_nowait)
    assert batch.is_compressing
    assert not compressor.is_compressed(batch, done.put_nowait)
    assert await done.get() is None

    assert compressor.is_compressed(batch, never)
    assert read_header(batch.data).codec is Codec.ZSTD
    assert await compressor.in_thread(sum, [1, 2]) == 3
    compressor.close()
    assert done.empty()
    assert threading.active_count() == before


@in_loop
async def test_what_cannot_be_compressed_is_told() -> None:
    compressor = Compressor(ProducerSettings(compression_type="gzip", compression_level=77))
    done: asyncio.Queue[Exception | None] = asyncio.Queue()
    compressor.begin(closed_batch(THREAD_BYTES), done.put_nowait)

    assert isinstance(await done.get(), EncodeError)
    with pytest.raises(EncodeError):
        compressor.is_compressed(closed_batch(100), never)
    compressor.close()
