"""`read_range` is the work of a task: it fetches a range of offsets, one answer ahead, and decodes it into Arrow
record batches."""

import asyncio
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

from penstock.client.admin.offsets import EARLIEST, LATEST, list_offsets
from penstock.client.cluster.retries import backoff_ms
from penstock.client.corruption import PassedOver, corrupt_batch, has_right_crc
from penstock.client.errors import BrokerError, CorruptBatchError, UnknownPartitionError, UnknownTopicError, unwrap
from penstock.protocol.batch import BatchHeader, split
from penstock.protocol.columns import Columns, Impl, decode_pieces, to_arrow
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.errors import DecodeError
from penstock.spark.link import SparkLink, connect
from penstock.spark.options import SourceOptions
from penstock.spark.planning import USUAL_BYTES, Range
from penstock.spark.positions import DataLossError, report_loss
from penstock.spark.schema import decoded_names
from penstock.spark.source.fetch import MAX_BYTES, Chunk, RemadeTopicError, fetch_chunk
from penstock.spark.workers import keep_memory, pass_over_imports

if TYPE_CHECKING:
    import pyarrow as pa

log: Final = logging.getLogger(__name__)

MAX_ROWS: Final = 20_000
"""Limits the rows of a record batch: below 2,000 Spark's cost for each batch shows, and far above nothing is gained."""
LEAST_BYTES: Final = 64 * 1024
"""The smallest fetch: one of fewer bytes costs as much."""
ROWS_FOR_NUMBA: Final = 1_000_000
"""The number of rows from which on it pays for a process to load Numba."""


def read_range(options: SourceOptions, wanted: Range, schema: "pa.Schema") -> Iterator["pa.RecordBatch"]:
    """The records of a range, as record batches of the schema. Offsets that compaction took, control records and
    records of aborted transactions are left out, and with onCorrupt=skip batches that cannot be read, which are counted
    and logged."""
    keep_memory()
    skipping = _Skipping(wanted, options.skips_corrupt)
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
                    max_decompressed_bytes=fetcher.max_decompressed_bytes,
                    on_corrupt=partial(skipping.at_batch, chunk),
                )
                for piece in pieces:
                    _decoder.rows += piece.count
                    yield from _to_batches(piece, names, wanted, schema)
            except DecodeError as error:
                raise _damaged(wanted, first_offset, error) from error
        skipping.finish()
    finally:
        fetcher.close()
        pass_over_imports()


class Fetcher:
    """The answers for a range in order, each with the offset that was asked for. While one is decoded, the next one is
    fetched."""

    def __init__(self, options: SourceOptions, wanted: Range, link: SparkLink) -> None:
        self._options = options
        self._wanted = wanted
        self._link = link
        self._max_bytes = (
            link.settings.max_partition_fetch_bytes if "max.partition.fetch.bytes" in options.settings else MAX_BYTES
        )
        self.checks_crcs = link.settings.check_crcs
        self.max_decompressed_bytes = link.settings.max_decompressed_bytes
        self._position = wanted.start
        # Bytes of an offset, as far as is known.
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
        """Bytes to fetch: enough for a small range at once, and little beyond its end."""
        wanted = round((self._wanted.end - self._position) * self._bytes_each * 1.1)
        return min(self._max_bytes, max(wanted, LEAST_BYTES))

    def _skip(self, error: BrokerError | RemadeTopicError) -> None:
        """Go on after records that are gone, if the user allows that."""
        # A topic that was made again with fewer partitions is noticed by the missing partition before its id is seen.
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
            # The error lasted only while leadership changed.
            self._patience.spend(f"{self._rest()}: {error}")
            self._ask_on(pause_ms=backoff_ms(self._patience.tries))

    def _check_end(self, chunk: Chunk) -> None:
        """Decide what an empty answer means: the log is shorter for a moment while leadership changes, or was cut
        off."""
        if chunk.data:
            self._refuse(chunk)
        if self._patience.is_over and 0 <= chunk.last_stable_offset < self._wanted.end:
            self._lose_end(chunk.last_stable_offset)
        else:
            self._patience.spend(f"{self._rest()} do not come")
            self._ask_on()

    def _refuse(self, chunk: Chunk) -> NoReturn:
        """Raise the error of a batch that does not lead to a later offset: every sound batch does."""
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
        first = unwrap(await list_offsets(cluster, {key: EARLIEST}))[key]
        last = unwrap(await list_offsets(cluster, {key: LATEST}))[key]
        return first.offset, last.offset


@dataclass(slots=True)
class _Decoder:
    """Chooses the decoder: Numba's is faster, and takes seconds to load in each process."""

    rows: int = 0
    """How many rows this process has decoded."""

    def impl(self, size: int) -> Impl:
        return "auto" if self.rows + size >= ROWS_FOR_NUMBA else "numpy"


_decoder: Final = _Decoder()


class _Patience:
    """Limits how long a task tries without progress. The time counts from the first answer that brings nothing: before
    that, Spark may have been busy with the rows it was given."""

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


@dataclass(slots=True)
class _Skipping:
    """Decides about batches that cannot be read: they fail the task, or are skipped, counted and logged."""

    wanted: Range
    is_wanted: bool
    passed_over: PassedOver = field(default_factory=PassedOver)

    def at_batch(self, chunk: Chunk, header: BatchHeader, view: memoryview, error: DecodeError) -> None:
        end: int | None = header.next_offset
        claims_too_much = 0 <= chunk.last_stable_offset < header.next_offset
        if header.next_offset == chunk.next_offset and claims_too_much and not has_right_crc(header, view):
            # The next fetch would begin there, and the records between would be lost unnoticed.
            end = None
        advice = f"run the query again, and if it stays so, set onCorrupt=skip to go on after it, at offset {end}"
        failure = corrupt_batch(self.wanted.key, header.base_offset, end, error, advice=advice)
        if end is None or not self.is_wanted:
            raise failure from error
        self.passed_over.note(failure)

    def finish(self) -> None:
        if self.passed_over.count:
            log.warning("%s: %d batches could not be read and were passed over", self.wanted, self.passed_over.count)


def _damaged(wanted: Range, offset: int, why: DecodeError | str) -> CorruptBatchError:
    return corrupt_batch(wanted.key, offset, None, why)


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
        # As in Spark's Kafka source, a record without headers has null, not an empty list.
        index = whole.schema.get_field_index("headers")
        headers = whole.column(index)
        is_empty = pc.equal(pc.list_value_length(headers), 0)
        whole = whole.set_column(index, schema.field("headers"), pc.if_else(is_empty, None, headers))
    if not whole.schema.equals(schema):
        whole = whole.cast(schema)
    for start in range(0, count, MAX_ROWS):
        yield whole.slice(start, min(MAX_ROWS, count - start))
