"""Where partitions go: evenly, and never twice to one rack while there is another."""

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.machines.placement import extend, place, problem

RACKS = st.dictionaries(st.integers(0, 100), st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=9)
EQUAL_RACKS = st.builds(
    lambda racks, size: {broker: f"rack {broker % racks}" for broker in range(racks * size)},
    st.integers(1, 5),
    st.integers(1, 4),
)


def place_new(partitions: int, replication_factor: int, racks: Mapping[int, str | None]) -> list[tuple[int, ...]]:
    return place(partitions, replication_factor, racks, led={}, led_in_topic={})


def spread(counts: Counter[int], brokers: Sequence[int] | Mapping[int, object]) -> int:
    return max(counts[broker] for broker in brokers) - min(counts[broker] for broker in brokers)


def test_one_broker_leads_everything() -> None:
    assert place_new(3, 1, {7: None}) == [(7,), (7,), (7,)]


def test_the_order_in_which_brokers_came_makes_no_difference() -> None:
    brokers = {broker: f"rack {broker % 2}" for broker in range(6)}

    assert place_new(12, 2, brokers) == place_new(12, 2, dict(reversed(brokers.items())))


def test_leaders_alternate_between_racks() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}

    assert [leader for leader, *_ in place_new(4, 1, racks)] == [1, 3, 2, 4]


@given(RACKS, st.integers(0, 60), st.data())
def test_replicas_are_on_different_brokers_and_in_as_many_racks_as_can_be(
    racks: dict[int, str | None], partitions: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(racks)))
    different = len({rack if rack is not None else broker for broker, rack in racks.items()})

    placed = place_new(partitions, factor, racks)

    assert len(placed) == partitions
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        assert set(replicas) <= set(racks)
        used = {racks[broker] if racks[broker] is not None else broker for broker in replicas}
        assert len(used) == min(factor, different)


@given(RACKS, st.lists(st.integers(1, 20), max_size=12))
def test_leaders_stay_even_over_brokers_within_a_topic_and_over_all_topics(
    racks: dict[int, str | None], topics: list[int]
) -> None:
    led: Counter[int] = Counter()
    for partitions in topics:
        leaders = Counter(replicas[0] for replicas in place(partitions, 1, racks, led=led, led_in_topic={}))
        assert spread(leaders, racks) <= 1
        led += leaders
        assert spread(led, racks) <= 1


@given(EQUAL_RACKS, st.lists(st.integers(1, 7), max_size=12))
def test_leaders_stay_even_over_racks_of_equal_size(racks: dict[int, str], topics: list[int]) -> None:
    led: Counter[int] = Counter()
    for partitions in topics:
        led += Counter(replicas[0] for replicas in place(partitions, 1, racks, led=led, led_in_topic={}))
    by_rack = Counter(dict.fromkeys(racks.values(), 0))
    for broker, count in led.items():
        by_rack[racks[broker]] += count

    assert max(by_rack.values()) - min(by_rack.values()) <= 1


@given(EQUAL_RACKS, st.integers(1, 6), st.data())
def test_replicas_are_even_over_brokers_when_everyone_leads_as_often(
    racks: dict[int, str], rounds: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(racks)))

    held = Counter(broker for replicas in place_new(rounds * len(racks), factor, racks) for broker in replicas)

    assert spread(held, racks) == 0


def test_the_followers_of_a_leader_change() -> None:
    placed = place_new(12, 2, dict.fromkeys(range(4)))

    assert {follower for leader, follower in placed if leader == 0} == {1, 2, 3}


def test_partitions_added_to_a_topic_even_out_what_it_has() -> None:
    led = {0: 5, 1: 1, 2: 1}

    placed = place(4, 1, dict.fromkeys(range(3)), led=led, led_in_topic={0: 1, 1: 1})

    assert Counter({0: 1, 1: 1}) + Counter(leader for (leader,) in placed) == {0: 2, 1: 2, 2: 2}


@pytest.mark.parametrize(
    ("assignment", "reason"),
    [
        ([(0, [1]), (1, [2])], None),
        ([(1, [2]), (0, [1])], None),
        ([], None),
        ([(0, [1]), (0, [2])], "must follow each other from 0 on"),
        ([(1, [1])], "must follow each other from 0 on"),
        ([(0, [1]), (-1, [1])], "must follow each other from 0 on"),
        ([(0, [])], "partition 0 needs a broker"),
        ([(0, [1]), (1, [9])], "partition 1 cannot be on broker 9"),
        ([(0, [3])], "partition 0 cannot be on broker 3, which is not alive"),
        ([(0, [1, 1])], "partition 0 cannot be twice on a broker"),
        ([(0, [1]), (1, [1, 2])], "partition 1 has 2 replicas where its topic has 1"),
    ],
)
def test_an_assignment_by_hand_is_checked(assignment: list[tuple[int, list[int]]], reason: str | None) -> None:
    found = problem(assignment, {1, 2, 3}, live={1, 2}, first=0, replication_factor=1)

    if reason is None:
        assert found is None
    else:
        assert reason in (found or "nothing wrong")


@given(st.dictionaries(st.integers(0, 9), st.sampled_from([None, "a", "b", "c"]), min_size=1), st.data())
def test_added_replicas_follow_those_that_there_are(racks: dict[int, str | None], data: st.DataObject) -> None:
    brokers = sorted(racks)
    partitions = data.draw(st.lists(st.lists(st.sampled_from(brokers), min_size=1, unique=True), max_size=9))
    factor = data.draw(st.integers(1, len(brokers)))

    extended = extend(partitions, factor, racks, held={})

    for before, after in zip(partitions, extended, strict=True):
        assert list(after[: len(before)]) == before
        assert len(after) == len(set(after)) == max(factor, len(before))


def test_added_replicas_go_to_other_racks() -> None:
    racks = {0: "a", 1: "a", 2: "b", 3: "b"}

    assert extend([[0]], 2, racks, held={2: 5, 3: 4}) == [(0, 3)]
    assert extend([[0, 2]], 3, racks, held={1: 1}) == [(0, 2, 3)]


def test_added_replicas_are_spread_evenly_over_brokers_of_the_topic_and_then_of_all() -> None:
    racks = dict.fromkeys(range(5))

    extended = extend([[0]] * 8, 3, racks, held={})

    assert Counter(replica for replicas in extended for replica in replicas[1:]) == dict.fromkeys(range(1, 5), 4)
    assert extend([[0]], 2, racks, held={1: 1, 2: 1, 3: 0, 4: 1}) == [(0, 3)]


def test_a_replica_of_a_broker_that_is_away_stays_where_it_is() -> None:
    assert extend([[9]], 2, {0: None, 1: None}, held={0: 3}) == [(9, 1)]
