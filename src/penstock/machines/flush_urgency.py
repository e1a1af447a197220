"""How urgent a flush is depends on which clients wait for the records that it would commit."""

from enum import IntEnum


class Urgency(IntEnum):
    """Which client waits for a flush; the greater, the sooner it has to begin."""

    NONE = 0
    READER = 1
    PRODUCER = 2


def flush_urgency(*, high_watermark: int, end_offset: int, has_producers: bool, has_readers: bool) -> Urgency:
    """The urgency of a flush of a partition: producers wait for records to be committed, readers have all that are. A
    topic that leaves flushes to the system commits what it writes, so that none of them waits for one."""
    if end_offset <= high_watermark:
        return Urgency.NONE
    if has_producers:
        return Urgency.PRODUCER
    return Urgency.READER if has_readers else Urgency.NONE
