"""The cache of indexes: what was used lately stays, within a number of bytes."""

from penstock.storage.log.index import SegmentIndex
from penstock.storage.log.index_cache import IndexCache

ENTRY_BYTES = 24


def index_of(entries: int) -> SegmentIndex:
    index = SegmentIndex(0)
    for number in range(entries):
        index.add(number, number * 100, number)
    return index


class Loads:
    """Notes what was loaded."""

    def __init__(self) -> None:
        self.stems: list[str] = []

    def get(self, cache: IndexCache, stem: str, entries: int = 10) -> SegmentIndex:
        def load() -> SegmentIndex:
            self.stems.append(stem)
            return index_of(entries)

        return cache.get(stem, load)


def test_an_index_is_loaded_once() -> None:
    cache, loads = IndexCache(), Loads()
    assert loads.get(cache, "a") is loads.get(cache, "a")
    assert loads.stems == ["a"]


def test_the_one_used_longest_ago_makes_room() -> None:
    cache, loads = IndexCache(limit_bytes=3 * 10 * ENTRY_BYTES), Loads()
    for stem in ["a", "b", "c", "a", "d"]:
        loads.get(cache, stem)
    assert cache.size_bytes == 3 * 10 * ENTRY_BYTES
    for stem in ["a", "c", "d"]:
        loads.get(cache, stem)
    assert loads.stems == ["a", "b", "c", "d"]
    loads.get(cache, "b")
    assert loads.stems[-1] == "b"


def test_one_that_is_larger_than_the_limit_is_held_alone() -> None:
    cache, loads = IndexCache(limit_bytes=100), Loads()
    loads.get(cache, "small", 1)
    large = loads.get(cache, "large", 1000)
    assert loads.get(cache, "large", 1000) is large
    assert cache.size_bytes == 1000 * ENTRY_BYTES
    loads.get(cache, "small", 1)
    assert loads.stems == ["small", "large", "small"]
    assert cache.size_bytes == ENTRY_BYTES


def test_what_is_put_replaces_what_was_there() -> None:
    cache, loads = IndexCache(), Loads()
    loads.get(cache, "a", 10)
    newer = index_of(3)
    cache.put("a", newer)
    assert loads.get(cache, "a") is newer
    assert cache.size_bytes == 3 * ENTRY_BYTES


def test_what_is_forgotten_is_loaded_anew_and_costs_nothing_meanwhile() -> None:
    cache, loads = IndexCache(), Loads()
    loads.get(cache, "a")
    cache.forget("a")
    cache.forget("never there")
    assert cache.size_bytes == 0
    loads.get(cache, "a")
    assert loads.stems == ["a", "a"]


def test_looking_at_an_index_neither_loads_it_nor_keeps_it() -> None:
    cache, loads = IndexCache(limit_bytes=2 * 10 * ENTRY_BYTES), Loads()
    assert cache.peek("a") is None
    first = loads.get(cache, "a")
    loads.get(cache, "b")
    assert cache.peek("a") is first
    loads.get(cache, "c")
    assert cache.peek("a") is None
