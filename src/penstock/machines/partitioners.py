"""Partitioners choose the partition of a record: by its key, as Java's client hashes it or consistently, or, without a
key, sticky, in turn or by chance."""

from bisect import bisect_right
from collections.abc import Sequence
from hashlib import blake2b
from struct import unpack_from

_SEED = 0x9747B28C
_MIX = 0x5BD1E995
_MASK = 0xFFFFFFFF


def partition_of_key(key: bytes, partitions: int) -> int:
    """The choice of every client that follows Java's default, so that equal keys stay in order."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def jump_partition_of_key(key: bytes, partitions: int) -> int:
    """Chooses by consistent hashing: a partition that is added takes its fair share of keys from the others, and no
    other key moves. The hash of the key is the first 64 bits of its BLAKE2b-64, big-endian."""
    return jump_hash(int.from_bytes(blake2b(key, digest_size=8).digest(), "big"), partitions)


def murmur2(data: bytes) -> int:
    """The 32-bit hash of Kafka's Java client, without sign."""
    words = len(data) // 4
    hashed = _SEED ^ len(data)
    for word in unpack_from(f"<{words}I", data):
        mixed = word * _MIX & _MASK
        mixed = (mixed ^ mixed >> 24) * _MIX & _MASK
        hashed = hashed * _MIX & _MASK ^ mixed
    if rest := data[words * 4 :]:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * _MIX & _MASK
    hashed = (hashed ^ hashed >> 13) * _MIX & _MASK
    return hashed ^ hashed >> 15


def jump_hash(key: int, buckets: int) -> int:
    """The bucket of a 64-bit key by Lamping's and Veach's jump consistent hash (arXiv:1406.2294)."""
    bucket, following = -1, 0
    while following < buckets:
        bucket = following
        key = (key * 2862933555777941757 + 1) & 0xFFFF_FFFF_FFFF_FFFF
        following = int((bucket + 1) * (2147483648.0 / ((key >> 33) + 1)))
    return bucket


class RoundRobin:
    """Each record to the next partition."""

    def __init__(self) -> None:
        self._last = -1

    def choose(self, partitions: Sequence[int]) -> int:
        """One of the partitions that can be written to now, which are in ascending order."""
        self._last = partitions[bisect_right(partitions, self._last) % len(partitions)]
        return self._last


class Sticky:
    """Stays with a partition until it got `sticky_bytes`, so that batches fill, then moves on (KIP-480, KIP-794)."""

    def __init__(self, sticky_bytes: int = 16384) -> None:
        self._sticky_bytes = sticky_bytes
        self._partition: int | None = None
        self._bytes = 0

    def choose(self, partitions: Sequence[int], size_bytes: int, chance: float) -> int:
        """One of the partitions that can be written to now. `chance`, from 0 to below 1, decides where to move."""
        if self._partition is None or self._partition not in partitions or self._bytes >= self._sticky_bytes:
            others = [partition for partition in partitions if partition != self._partition] or partitions
            self._partition = others[int(chance * len(others))]
            self._bytes = 0
        self._bytes += size_bytes
        return self._partition
