"""Computes which partition of `__consumer_offsets` holds a group, by Kafka's rule, so that its tools look in the right
place."""

from functools import lru_cache
from typing import Final

from penstock.machines.groups.bounds import is_name

OFFSETS_TOPIC: Final = "__consumer_offsets"

_SMALLEST: Final = -0x8000_0000


def partition_for(group_id: str, partitions: int) -> int:
    """The partition of a group, out of `partitions`. What is too long for a group's name is neither hashed nor
    remembered: the coordinator that it is sent to refuses it."""
    return _partition_for(group_id, partitions) if is_name(group_id) else 0


@lru_cache(maxsize=10_000)
def _partition_for(group_id: str, partitions: int) -> int:
    number = java_hash(group_id)
    # The smallest number has no counterpart among Java's positive ones; Kafka takes 0 for it.
    return 0 if number == _SMALLEST else abs(number) % partitions


def java_hash(text: str) -> int:
    """Java's `String.hashCode`, a signed number of 32 bits. It goes over UTF-16 units, not over characters."""
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    number = 0
    for unit in units:
        number = (number * 31 + unit) & 0xFFFF_FFFF
    return number - 0x1_0000_0000 if number & 0x8000_0000 else number
