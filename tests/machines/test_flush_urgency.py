"""Which flushes are urgent."""

import pytest

from penstock.machines.flush_urgency import Urgency, flush_urgency


@pytest.mark.parametrize(
    ("has_producers", "has_readers", "expected"),
    [
        (False, False, Urgency.NONE),
        (False, True, Urgency.READER),
        (True, False, Urgency.PRODUCER),
        (True, True, Urgency.PRODUCER),
    ],
)
def test_records_that_are_not_committed_are_urgent_for_readers_and_more_so_for_producers(
    has_producers: bool, has_readers: bool, expected: Urgency
) -> None:
    found = flush_urgency(high_watermark=5, end_offset=7, has_producers=has_producers, has_readers=has_readers)
    assert found is expected


def test_the_urgencies_have_an_order() -> None:
    assert sorted(Urgency) == [Urgency.NONE, Urgency.READER, Urgency.PRODUCER]


def test_where_everything_is_committed_nothing_is_urgent() -> None:
    assert flush_urgency(high_watermark=5, end_offset=5, has_producers=True, has_readers=True) is Urgency.NONE
