"""Group lags say how far groups are behind: groups that this broker coordinates, in partitions that it leads. Of other
partitions only what was committed is known here."""

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.broker.partitions.partition import Partition
from penstock.protocol.batch import BatchHeader
from penstock.protocol.error_codes import ErrorCode
from penstock.storage.errors import StorageError

if TYPE_CHECKING:
    from penstock.broker.services import Services

SLICE_OFFSETS: Final = 100
# The committed offsets that a page has at most.
MAX_OFFSETS: Final = 10_000


class GroupLag(NamedTuple):
    """`messages` is None where another broker leads. `seconds` is None there, and while it is unknown: the message is
    deleted, has no timestamp, or lies on the disk alone."""

    group: str
    topic: str
    partition: int
    committed: int
    messages: int | None = None
    seconds: float | None = None


class GroupLags:
    """Remembers when the messages came that groups have to read next: a group that stands still is looked up once."""

    def __init__(self) -> None:
        self._times: dict[tuple[str, str, int], tuple[int, int]] = {}

    def slices(self, services: "Services") -> Iterator[list[GroupLag]]:
        """All lags, a few at a time."""
        times: dict[tuple[str, str, int], tuple[int, int]] = {}
        lags: list[GroupLag] = []
        for number, (group, topic, index, offset) in enumerate(islice(_committed(services), MAX_OFFSETS), start=1):
            partition = services.partitions.get(topic, index)
            if isinstance(partition, Partition):
                messages = max(0, partition.high_watermark - offset)
                time_ms = self._time(partition, group, offset) if messages else None
                if time_ms is not None:
                    times[group, topic, index] = offset, time_ms
                seconds = _seconds(messages, time_ms, services.now_ms())
                lags.append(GroupLag(group, topic, index, offset, messages, seconds))
            elif partition is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                lags.append(GroupLag(group, topic, index, offset))
            if number % SLICE_OFFSETS == 0:
                yield lags
                lags = []
        yield lags
        self._times = times

    def _time(self, partition: Partition, group: str, offset: int) -> int | None:
        known_offset, time_ms = self._times.get((group, partition.topic, partition.index), (None, None))
        if known_offset == offset:
            return time_ms
        try:
            header = partition.log.find_cached(offset)
        except (OSError, StorageError):
            # A client that reads there gets the error.
            return None
        return None if header is None else first_timestamp(header)


def first_timestamp(header: BatchHeader) -> int | None:
    """When the first record of a batch came, as far as its header knows; None if it does not."""
    is_maximum = header.is_log_append_time or header.has_delete_horizon
    timestamp = header.max_timestamp if is_maximum else header.base_timestamp
    return timestamp if timestamp >= 0 else None


def _committed(services: "Services") -> Iterator[tuple[str, str, int, int]]:
    """Group, topic, partition and offset of all commits. What is looked at is copied a group at a time, since groups
    go on while a page is written."""
    for shard in list(services.groups.shards()):
        machine = shard.machine
        if machine is None:
            continue
        for name in [listing.group_id for listing in islice(machine.groups(), MAX_OFFSETS)]:
            for (topic, partition), committed in machine.committed(name).items():
                yield name, topic, partition, committed.offset


def _seconds(messages: int, time_ms: int | None, now_ms: int) -> float | None:
    if not messages:
        return 0.0
    return None if time_ms is None else max(0.0, (now_ms - time_ms) / 1000)
