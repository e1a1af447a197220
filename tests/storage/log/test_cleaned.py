"""What travels between the broker and its helper."""

from dataclasses import astuple

from penstock.storage.log.cleaned import CleanedSegment, CleaningDone, CleaningJob, Source

SOURCES = (Source(0, 10, 500), Source(10, 12, 90))


def test_everything_is_made_of_plain_values() -> None:
    job = CleaningJob("/log", (SOURCES,), 0, 12, 0, 0, 0, 4096, 1000, None)
    cleaned = CleanedSegment(0, 12, 100, SOURCES, 0)
    done = CleaningDone(12, -1, 0, 590, 100, 12, 2, 2, 0.1)
    assert all(is_plain(astuple(value)) for value in (job, cleaned, done))


def is_plain(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(is_plain, value))
    return value is None or type(value) in (int, float, str)


def test_sources_are_known_by_their_values() -> None:
    assert Source(0, 10, 500) == SOURCES[0]
    assert {SOURCES[0]: 1}[Source(0, 10, 500)] == 1
