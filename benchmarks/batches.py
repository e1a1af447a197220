"""Makes record batches of an exact size to measure with, and logs filled with them. Records are random bytes, 1 KB
each."""

from random import Random

from penstock.protocol.batch import read_header, stamp_log_append_time
from penstock.protocol.records import NewRecord, build
from penstock.storage.log.log import Log

KB = 1000
MB = 1000 * KB
GB = 1000 * MB
_RANDOM = Random(20)
# More than a record's fields and the batch's header take besides the value.
_MARGIN = 80


def make_batch(size: int) -> bytearray:
    """A batch of `size` bytes, header and all; the last record is what is left over, 1 to 2 KB of it."""
    records = [_record(KB) for _ in range((size - _MARGIN) // (KB + 16) - 1)]
    left = size - len(build([*records, _record(0)]))
    # A value of that size needs one more byte for its own length and one for its record's.
    batch = build([*records, _record(left - 2)])
    assert len(batch) == size
    return batch


def fill(log: Log, *, size: int, batch_bytes: int) -> int:
    """Append batches with the timestamps 0, 1, 2, … until there are `size` bytes; returns how many batches that are."""
    views = [memoryview(make_batch(batch_bytes)) for _ in range(max(1, MB // batch_bytes))]
    count = 0
    while count * batch_bytes < size:
        for timestamp, view in enumerate(views, start=count):
            stamp_log_append_time(view, timestamp)
        log.append([(read_header(view), view) for view in views], leader_epoch=0, now_ms=0)
        count += len(views)
    return count


def _record(size: int) -> NewRecord:
    return NewRecord(_RANDOM.randbytes(size), timestamp=0)
