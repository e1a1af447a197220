"""A task's work: fetch a range of offsets, one answer ahead, and decode it into Arrow record batches."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from penstock.client import admin
from penstock.client.admin import EARLIEST, LATEST
from penstock.client.errors import BrokerError, CorruptBatchError, UnknownPartitionError, UnknownTopicError, unwrap
from penstock.client.retrying import backoff_ms
from penstock.protocol.batch import split
from penstock.protocol.columns import Columns, Impl, decode_pieces, to_arrow
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.errors import DecodeError
from penstock.spark.connecting import Link, connect
from penstock.spark.fetching import MAX_BYTES, Chunk, RemadeTopicError, fetch_chunk
from penstock.spark.options import SourceOptions
from penstock.spark.planning import USUAL_BYTES, Range
from penstock.spark.positions import DataLossError, report_loss
from penstock.spark.schema import decoded_names
from penstock.spark.workers import keep_memory, pass_over_imports

if TYPE_CHECKING:
    import pyarrow as pa

MAX_ROWS: Final = 20_000
"""Rows of a record batch: below 2,000 Spark's cost for each shows, and far above nothing is gained."""
LEAST_BYTES: Final = 64 * 1024
"""To fetch less costs the same."""
ROWS_FOR_NUMBA: Final = 1_000_000
"""From how many rows on it pays for a process to load Numba."""


def read_range(options: SourceOptions, wanted: Range, schema: "pa.Schema") -> Iterator["pa.RecordBatch"]:
    """The records of a range, as record batches of the schema. Offsets that compaction took, control records and
    records of aborted transactions are left out."""
    keep_memory()
    fetcher = Fetcher(options, wanted, connect(options.settings))
    names = decoded_names(schema.names)
    columns = {*names, "offset"} - {"topic", "partition"}
    try:
        for first_offset, chunk in fetcher:
            try:
                pieces = decode_pieces(
                    chunk.data,
                    columns=columns,
                    start_offset=first_offset,
                    aborted=chunk.aborted,
                    is_verified=not fetcher.checks_crcs,
                    impl=_decoder.impl(wanted.size),
                )
                for piece in pieces:
                    _decoder.rows += piece.count
                    yield from _to_batches(piece, names, wanted, schema)
            except DecodeError as error:
                raise _damaged(wanted, first_offset, error) from error
    finally:
        fetcher.close()
        pass_over_imports()


class Fetcher:
    """The answers that a range needs: each with the offset that was asked for, in order. While one is decoded, the next
    is on its way."""

    def __init__(self, options: SourceOptions, wanted: Range, link: Link) -> None:
        self._options = options
        self._wanted = wanted
        self._link = link
        self._max_bytes = (
            link.settings.max_partition_fetch_bytes if "max.partition.fetch.bytes" in options.settings else MAX_BYTES
        )
        self.checks_crcs = link.settings.check_crcs
        self._position = wanted.start
        # Of an offset, as far as is known.
        self._bytes_each = USUAL_BYTES
        self._coming = link.submit(self._fetch())
        self._patience = _Patience(link.settings.default_api_timeout_ms)

    def __iter__(self) -> Iterator[tuple[int, Chunk]]:
        while self._position < self._wanted.end:
            try:
                chunk = self._coming.result()
            except (BrokerError, RemadeTopicError) as error:
                self._skip(error)
                continue
            first_offset = self._position
            if chunk.next_offset <= first_offset:
                self._check_end(chunk)
                continue
            self._position = chunk.next_offset
            self._bytes_each = len(chunk.data) / (self._position - first_offset)
            self._patience.renew()
            self._ask_on()
            yield first_offset, chunk

    def close(self) -> None:
        self._coming.cancel()

    def _ask_on(self, *, pause_ms: float = 0.0) -> None:
        if self._position < self._wanted.end:
            self._coming = self._link.submit(self._fetch(pause_ms))

    async def _fetch(self, pause_ms: float = 0.0) -> Chunk:
        if pause_ms:
            await asyncio.sleep(pause_ms / 1000)
        wanted = self._wanted
        return await fetch_chunk(
            self._link.cluster,
            wanted.key,
            wanted.topic_id,
            self._position,
            end=wanted.end,
            max_bytes=self._enough_bytes(),
            read_committed=self._options.reads_committed,
        )

    def _enough_bytes(self) -> int:
        """So much that a small range comes at once, and not much behind it."""
        wanted = round((self._wanted.end - self._position) * self._bytes_each * 1.1)
        return min(self._max_bytes, max(wanted, LEAST_BYTES))

    def _skip(self, error: BrokerError | RemadeTopicError) -> None:
        """Go on behind what is gone, if the user says so and it is gone."""
        # A topic that was made again with fewer partitions shows itself by the number before it does by its id.
        if isinstance(error, UnknownTopicError | UnknownPartitionError | RemadeTopicError):
            report_loss(f"{self._rest()} cannot be read: {error}", self._options)
            self._position = self._wanted.end
            return
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            raise error
        first, last = self._link.run(self._log_range())
        if first > self._position:
            until = min(first, self._wanted.end)
            report_loss(
                f"offsets {self._position} to {until} of {self._wanted.key} are gone: retention, or somebody who "
                f"deleted records, was faster than the query; the log begins at {first} now",
                self._options,
            )
            self._position = until
            self._patience.renew()
            self._ask_on()
        elif last < self._wanted.end and last <= self._position:
            self._lose_end(last)
        else:
            # It was so for a moment, while leadership changed.
            self._patience.spend(f"{self._rest()}: {error}")
            self._ask_on(pause_ms=backoff_ms(self._patience.tries))

    def _check_end(self, chunk: Chunk) -> None:
        """Nothing came: the log may be shorter for a moment, while leadership changes, or was cut off."""
        if chunk.data:
            self._refuse(chunk)
        if self._patience.is_over and 0 <= chunk.last_stable_offset < self._wanted.end:
            self._lose_end(chunk.last_stable_offset)
        else:
            self._patience.spend(f"{self._rest()} do not come")
            self._ask_on()

    def _refuse(self, chunk: Chunk) -> NoReturn:
        """Every batch that is one takes us further."""
        try:
            split(chunk.data)
        except DecodeError as error:
            raise _damaged(self._wanted, self._position, error) from error
        raise _damaged(self._wanted, self._position, "all of it lies before that")

    def _lose_end(self, last: int) -> None:
        report_loss(f"{self._rest()} are gone: the log ends at {last} now, it was cut off", self._options)
        self._position = self._wanted.end

    def _rest(self) -> str:
        return f"offsets {self._position} to {self._wanted.end} of {self._wanted.key}"

    async def _log_range(self) -> tuple[int, int]:
        key, cluster = self._wanted.key, self._link.cluster
        first = unwrap(await admin.list_offsets(cluster, {key: EARLIEST}))[key]
        last = unwrap(await admin.list_offsets(cluster, {key: LATEST}))[key]
        return first.offset, last.offset


@dataclass(slots=True)
class _Decoder:
    """Which decoder to use: Numba's is faster, and takes seconds to load in each process."""

    rows: int = 0
    """Decoded in this process up to now."""

    def impl(self, size: int) -> Impl:
        return "auto" if self.rows + size >= ROWS_FOR_NUMBA else "numpy"


_decoder: Final = _Decoder()


class _Patience:
    """How long a task tries without getting on. It counts from the first answer that is no help, for until then the
    time may have been Spark's, which can take long for what it was given."""

    def __init__(self, limit_ms: int) -> None:
        self._limit_ms = limit_ms
        self.renew()

    def renew(self) -> None:
        self.tries = 0
        self._until = float("inf")

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self._until

    def spend(self, why: str) -> None:
        if self.is_over:
            raise DataLossError(f"{why}, for {self._limit_ms} ms now: look at the partition's leader, and try again")
        if not self.tries:
            self._until = time.monotonic() + self._limit_ms / 1000
        self.tries += 1


def _damaged(wanted: Range, offset: int, why: DecodeError | str) -> CorruptBatchError:
    return CorruptBatchError(
        f"{wanted.key}: what was fetched from offset {offset} on is damaged ({why}); run the query again, and if it "
        "stays so, the broker's disk is to blame: restore the partition"
    )


def _to_batches(
    piece: Columns, names: dict[str, str], wanted: Range, schema: "pa.Schema"
) -> Iterator["pa.RecordBatch"]:
    import numpy as np
    import pyarrow.compute as pc

    assert piece.offset is not None, "it is always decoded"
    count = int(np.searchsorted(piece.offset, wanted.end)) if piece.count else 0
    if not count:
        return
    whole = to_arrow(piece, names, topic=wanted.topic, partition=wanted.partition)
    if "headers" in names:
        # As in Spark's Kafka source: no headers are null, and no empty list.
        index = whole.schema.get_field_index("headers")
        headers = whole.column(index)
        is_empty = pc.equal(pc.list_value_length(headers), 0)
        whole = whole.set_column(index, schema.field("headers"), pc.if_else(is_empty, None, headers))
    if not whole.schema.equals(schema):
        whole = whole.cast(schema)
    for start in range(0, count, MAX_ROWS):
        yield whole.slice(start, min(MAX_ROWS, count - start))
