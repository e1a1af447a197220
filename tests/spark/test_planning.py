"""What a batch reads, fairly limited and cut into tasks."""

import itertools
import random

import pytest

from penstock.client.metadata import TopicPartition
from penstock.spark.offsets import Offsets
from penstock.spark.planning import USUAL_BYTES, PlanError, Range, limit, limit_bytes, plan_ranges, share, split


def key(partition: int, topic: str = "a") -> TopicPartition:
    return TopicPartition(topic, partition)


def offsets(*positions: int, topic_id: str = "A") -> Offsets:
    return Offsets({key(index): each for index, each in enumerate(positions)}, {"a": topic_id})


def test_a_batch_reads_what_lies_between() -> None:
    assert plan_ranges(offsets(1, 5), offsets(4, 5)) == [Range("a", "A", 0, 1, 4)]


def test_a_new_partition_is_read_from_its_beginning() -> None:
    assert plan_ranges(offsets(4), offsets(4, 3)) == [Range("a", "A", 1, 0, 3)]


def test_a_topic_that_was_made_again_is_read_from_its_beginning() -> None:
    assert plan_ranges(offsets(9, topic_id="old"), offsets(3, topic_id="new")) == [Range("a", "new", 0, 0, 3)]


@pytest.mark.parametrize(("before", "now"), [("A", ""), ("", "A"), ("", "")])
def test_an_id_that_nobody_tells_makes_no_other_topic(before: str, now: str) -> None:
    assert plan_ranges(offsets(5, topic_id=before), offsets(9, topic_id=now)) == [Range("a", now, 0, 5, 9)]


def test_what_was_deleted_is_not_read() -> None:
    assert plan_ranges(offsets(1, 2), offsets(1)) == []
    assert plan_ranges(offsets(1), Offsets({}, gone=offsets(1))) == []


def test_what_was_gone_for_a_while_goes_on_where_it_was() -> None:
    start = Offsets({key(0): 3}, {"a": "A"}, gone=Offsets({key(1): 7}, {"a": "A"}))

    assert plan_ranges(start, offsets(3, 9)) == [Range("a", "A", 1, 7, 9)]
    assert plan_ranges(Offsets({}, gone=offsets(7)), offsets(9, topic_id="new")) == [Range("a", "new", 0, 0, 9)]


def test_the_first_batch_begins_where_its_end_says() -> None:
    """The initial offset is asked for again after a failed first batch, and may have moved."""
    end = Offsets({key(0): 9}, {"a": "A"}, begin=offsets(2))

    assert plan_ranges(offsets(7), end) == [Range("a", "A", 0, 2, 9)]
    assert plan_ranges(offsets(12), end) == [Range("a", "A", 0, 2, 9)]


def test_a_first_batch_without_anything_stays_empty() -> None:
    """Spark makes one in any case, from the initial offset to the same."""
    assert plan_ranges(offsets(7), Offsets({key(0): 5}, {"a": "A"}, is_initial=True)) == []


def test_a_beginning_that_cannot_be_told_is_an_error_only_if_the_end_does_not_tell_it() -> None:
    start = Offsets({}, is_initial=True, error="nobody knows")

    assert plan_ranges(start, Offsets({key(0): 9}, {"a": "A"}, begin=offsets(2))) == [Range("a", "A", 0, 2, 9)]
    assert plan_ranges(start, Offsets({key(0): 5}, {"a": "A"}, is_initial=True)) == []
    with pytest.raises(PlanError, match="nobody knows"):
        plan_ranges(start, offsets(9))


def test_an_end_before_the_start_is_refused() -> None:
    with pytest.raises(PlanError, match="a-0 would be read from offset 5 to 3: an end before the start"):
        plan_ranges(offsets(5), offsets(3))

    assert plan_ranges(offsets(5), offsets(3), may_go_back=True) == []


def test_a_limit_is_shared_by_what_waits() -> None:
    assert limit({key(0): 100, key(1): 0}, {key(0): 400, key(1): 100}, 40) == {key(0): 130, key(1): 10}


def test_a_limit_that_is_not_reached_changes_nothing() -> None:
    assert limit({key(0): 1}, {key(0): 5, key(1): 3}, 7) == {key(0): 5, key(1): 3}


def test_a_log_that_was_cut_off_has_no_part_in_a_limit() -> None:
    assert limit({key(0): 9, key(1): 0}, {key(0): 4, key(1): 8}, 2) == {key(0): 4, key(1): 2}


def test_bytes_are_limited_by_what_records_weigh() -> None:
    ends = limit_bytes({key(0): 0, key(1): 0}, {key(0): 1000, key(1): 1000}, 10_000, {key(0): 100.0, key(1): 900.0})

    assert ends == {key(0): 10, key(1): 10}
    assert limit_bytes({}, {key(0): 10}, 10_000, {key(0): 100.0}) == {key(0): 10}
    assert limit_bytes({}, {key(0): 10}, 1, {key(0): 1e6}) == {key(0): 1}


def test_records_of_which_nothing_is_known_are_taken_for_usual_ones() -> None:
    most = round(10 * USUAL_BYTES)

    assert limit_bytes({}, {key(0): 1000}, most, {}) == {key(0): 10}
    assert [part.size for part in split([Range("a", "A", 0, 0, 40)], max_bytes=most)] == [10] * 4
    ranges = [Range("a", "A", index, 0, 40) for index in (0, 1)]
    assert len(split(ranges, max_bytes=1000, bytes_each={key(0): 50.0})) == 4, "like the others, if there are any"


def test_shares_are_fair_and_add_up() -> None:
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    for _ in range(300):
        wanted = {index: chance.randrange(1, 10 ** chance.randrange(1, 8)) for index in range(chance.randrange(1, 20))}
        most = chance.randrange(1, 10**6)
        shares = share(most, wanted)

        assert all(1 <= shares[each] <= wanted[each] for each in wanted), seed
        # Nobody is starved, so with more that want something than there is it becomes more.
        assert sum(shares.values()) <= max(most, len(wanted)), seed
        if (total := sum(wanted.values())) <= most:
            assert shares == wanted, seed
        else:
            assert all(shares[each] <= count * most // total + 1 for each, count in wanted.items()), seed
            assert len(wanted) > most or sum(shares.values()) >= most - len(wanted), seed


def test_one_partition_is_split_over_tasks() -> None:
    assert split([Range("a", "A", 0, 10, 20)], min_parts=3) == [
        Range("a", "A", 0, 10, 13),
        Range("a", "A", 0, 13, 16),
        Range("a", "A", 0, 16, 20),
    ]


def test_the_largest_ranges_are_split_first() -> None:
    parts = split([Range("a", "A", 0, 0, 10), Range("a", "A", 1, 0, 100)], min_parts=5)

    assert [part.partition for part in parts] == [0, 1, 1, 1, 1]


def test_no_part_is_larger_than_the_maximum() -> None:
    assert [part.size for part in split([Range("a", "A", 0, 0, 25)], max_records=10)] == [8, 8, 9]
    parts = split([Range("a", "A", 0, 0, 100)], max_bytes=1000, bytes_each={key(0): 50.0})
    assert [part.size for part in parts] == [20] * 5


def test_parts_cover_the_ranges_and_nothing_else() -> None:
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    for _ in range(200):
        ranges = [
            Range("a", "A", index, start := chance.randrange(1000), start + chance.randrange(1, 500))
            for index in range(chance.randrange(1, 6))
        ]
        least = chance.choice([None, chance.randrange(1, 50)])
        most = chance.choice([None, chance.randrange(1, 100)])
        parts = split(ranges, min_parts=least, max_records=most)

        for each in ranges:
            own = [part for part in parts if part.partition == each.partition]
            assert (own[0].start, own[-1].end) == (each.start, each.end), seed
            assert all(left.end == right.start for left, right in itertools.pairwise(own)), seed
        assert all(part.size >= 1 for part in parts), seed
        assert least is None or len(parts) >= min(least, sum(each.size for each in ranges)), seed
        assert most is None or max(part.size for part in parts) <= most, seed


def test_without_limits_a_partition_is_one_task() -> None:
    ranges = [Range("a", "A", 0, 0, 10), Range("a", "A", 1, 5, 6)]

    assert split(ranges) == ranges
    assert split([], min_parts=4) == []


def test_a_range_is_told_in_words() -> None:
    assert str(Range("a", "A", 3, 1, 9)) == "offsets 1 to 9 of a-3"
