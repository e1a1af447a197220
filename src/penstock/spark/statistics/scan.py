"""`scan` is the work of a task of the statistics: one pass over a piece of a partition, which copies no values and
audits the batch headers."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from penstock.client.corruption import corrupt_batch
from penstock.protocol.batch import LOG_APPEND_TIME_BIT, BatchHeader, split, verify
from penstock.protocol.columns import Columns, decode_pieces, to_arrow
from penstock.protocol.errors import DecodeError
from penstock.spark.lake.lake import Lake, Source
from penstock.spark.lake.reader import read_present_rows
from penstock.spark.link import connect
from penstock.spark.options import SourceOptions
from penstock.spark.planning import Range
from penstock.spark.positions import DataLossError
from penstock.spark.source.fetch import Chunk
from penstock.spark.source.reader import Fetcher
from penstock.spark.statistics.audit import Auditor, Finding, Kind, Part, Span
from penstock.spark.statistics.plan import Piece, Scope
from penstock.spark.statistics.tally import Tally, make_rows

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

# The position of the lower byte of a batch's attributes.
_ATTRIBUTES: Final = 22


@dataclass(slots=True, frozen=True)
class Job:
    """What every task gets."""

    options: SourceOptions
    source: Source
    scope: Scope


def scan(job: Job, piece: Piece, number: int) -> "Iterator[pa.RecordBatch]":
    """The counts of a piece, and the audit of its batches if they come from the log."""
    tally = Tally(piece.range.topic, job.scope)
    if piece.lake is not None:
        yield from _scan_lake(tally, piece.lake, piece.range)
    else:
        auditor = Auditor(
            piece.range.start, piece.range.end, is_lead=piece.is_lead, is_from_beginning=piece.is_from_beginning
        )
        yield from _scan_log(job, piece, tally, auditor)
        part = json.dumps(asdict(auditor.finish())).encode()
        yield from make_rows(
            "audit", piece.range.topic, partition=[piece.range.partition], bucket=[number], part=[part]
        )
    yield from tally.rows()


def read_part(data: bytes) -> Part:
    """An audited part, as `scan` writes it."""
    told = json.loads(data)
    spans = [Span(**each) for each in told.pop("spans")]
    findings = [Finding(**(each | {"kind": Kind(each["kind"])})) for each in told.pop("findings")]
    return Part(**told, spans=spans, findings=findings)


def _scan_log(job: Job, piece: Piece, tally: Tally, auditor: Auditor) -> "Iterator[pa.RecordBatch]":
    # Records that retention deletes meanwhile are no error, unless the lake has them.
    options = replace(job.options, fails_on_data_loss=piece.archived_in is not None)
    position, end = piece.range.start, piece.range.end
    while position < end:
        fetcher = Fetcher(options, replace(piece.range, start=position), connect(options.settings))
        try:
            for first_offset, chunk in fetcher:
                _add_chunk(tally, auditor, piece.range, first_offset, chunk, checks_crcs=fetcher.checks_crcs)
                position = chunk.next_offset
                yield from tally.overflow()
            return
        except DataLossError:
            lake = piece.archived_in
            archived = 0 if lake is None else Lake.load(lake).ends(job.source).get(piece.range.partition, 0)
            if lake is None or archived <= position:
                options = replace(options, fails_on_data_loss=False)
                continue
        finally:
            fetcher.close()
        until = min(archived, end)
        yield from _scan_lake(tally, lake, replace(piece.range, start=position, end=until))
        position = until


def _add_chunk(
    tally: Tally, auditor: Auditor, wanted: Range, first_offset: int, chunk: Chunk, *, checks_crcs: bool
) -> None:
    try:
        batches = split(chunk.data)
        auditor.add(header for header, _ in batches)
        data: Any = chunk.data
        if any(header.is_log_append_time for header, _ in batches):
            if checks_crcs:
                for header, view in batches:
                    verify(header, view)
                checks_crcs = False
            data = _with_producers_time(chunk.data, batches)
        pieces = decode_pieces(
            data,
            columns=("key", "offset", "timestamp", "size"),
            start_offset=max(first_offset, wanted.start),
            aborted=chunk.aborted,
            is_verified=not checks_crcs,
            impl="numpy",
            on_corrupt=partial(_refuse, wanted),
        )
        for piece in pieces:
            if piece.count:
                _add_rows(tally, wanted, piece, [header for header, _ in batches])
    except DecodeError as error:
        raise corrupt_batch(wanted.key, first_offset, None, error) from error


def _refuse(wanted: Range, header: BatchHeader, _: memoryview, error: DecodeError) -> NoReturn:
    advice = "count what comes before and after it, by its times"
    raise corrupt_batch(wanted.key, header.base_offset, header.next_offset, error, advice=advice) from error


def _add_rows(tally: Tally, wanted: Range, piece: Columns, headers: list[BatchHeader]) -> None:
    import numpy as np

    assert piece.offset is not None, "it is asked for"
    assert piece.timestamp is not None, "it is asked for"
    assert piece.size is not None, "it is asked for"
    count = int(np.searchsorted(piece.offset, wanted.end))
    sent_ms: NDArray[np.int64] = piece.timestamp[:count]
    batch_of = np.searchsorted(np.array([each.base_offset for each in headers]), piece.offset[:count], "right") - 1
    is_appended = np.array([each.is_log_append_time for each in headers])[batch_of]
    appended_ms = np.array([each.max_timestamp for each in headers])[batch_of]
    # Compaction rewrites a batch, with the broker's time in place of the producer's.
    is_whole = np.array([each.record_count == each.last_offset_delta + 1 for each in headers])[batch_of]
    keeps_time = ~np.array([each.has_delete_horizon for each in headers])[batch_of]
    tally.add(
        wanted.partition,
        to_arrow(piece, ["key"]).column(0).slice(0, count),
        piece.size[:count].astype(np.int64),
        times_ms=np.where(is_appended, appended_ms, sent_ms),
        latencies_ms=appended_ms - sent_ms,
        has_latency=is_appended & is_whole & keeps_time & (sent_ms >= 0),
    )


def _with_producers_time(data: memoryview, batches: list[tuple[BatchHeader, memoryview]]) -> bytearray:
    """The batches without the bit that has readers take the broker's timestamp: the broker writes its own into the
    header and leaves the producer's in the records."""
    copied = bytearray(data)
    position = 0
    for header, _ in batches:
        copied[position + _ATTRIBUTES] &= ~LOG_APPEND_TIME_BIT & 0xFF
        position += header.size
    return copied


def _scan_lake(tally: Tally, path: str, wanted: Range) -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa

    for table in read_present_rows(path, wanted.partition, start=wanted.start, end=wanted.end):
        for rows in table.to_batches(max_chunksize=100_000):
            times = rows.column("timestamp").cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
            times_ms = times.fill_null(-1).to_numpy(zero_copy_only=False)
            tally.add(wanted.partition, rows.column("key"), _sizes(rows), times_ms=times_ms)
        yield from tally.overflow()


def _sizes(rows: "pa.RecordBatch") -> "NDArray[np.int64]":
    """Bytes of key, value and headers, as the decoder counts them."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    def lengths(column: pa.Array) -> "NDArray[np.int64]":
        counted: NDArray[np.int64] = pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        return counted.astype(np.int64)

    sizes = lengths(rows.column("key")) + lengths(rows.column("value"))
    headers = rows.column("headers")
    each = pc.list_flatten(headers)
    if len(each):
        owners = pc.list_parent_indices(headers).to_numpy(zero_copy_only=False)
        added = lengths(pc.struct_field(each, "key").cast(pa.binary())) + lengths(pc.struct_field(each, "value"))
        np.add.at(sizes, owners, added)
    return sizes
