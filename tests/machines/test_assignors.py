"""Assignors: every partition has one owner who wants it, shares are even, and no more is moved than must be."""

import random
from collections import Counter
from collections.abc import Iterable, Mapping

import pytest

from penstock.machines.assignors import (
    BY_NAME,
    COOPERATIVE_STICKY,
    RANGE,
    ROUND_ROBIN,
    Assignor,
    Candidate,
    Partition,
    Plan,
    is_cooperative,
)


def member(
    *topics: str, owned: Iterable[Partition] = (), generation: int = -1, instance: str | None = None
) -> Candidate:
    return Candidate(topics=frozenset(topics), owned=frozenset(owned), generation=generation, instance_id=instance)


def settle(members: dict[str, Candidate], partitions: Mapping[str, int]) -> tuple[Plan, int]:
    """Share out as often as a cooperative group does, until nobody has to give anything up; the last plan, and how
    often that was."""
    for generation in range(1, 10):
        plan = COOPERATIVE_STICKY.assign(members, partitions)
        given_up = False
        for name, candidate in members.items():
            mine = frozenset(plan.get(name, ()))
            given_up = given_up or bool(candidate.owned - mine)
            members[name] = Candidate(topics=candidate.topics, owned=mine, generation=generation)
        if not given_up:
            return plan, generation
    raise AssertionError("it never settles")


def owners(plan: Plan) -> dict[Partition, str]:
    found = [(partition, name) for name, given in plan.items() for partition in given]
    assert len(dict(found)) == len(found), "a partition was given twice"
    return dict(found)


def test_the_names_are_those_that_other_clients_use() -> None:
    assert list(BY_NAME) == ["range", "roundrobin", "cooperative-sticky"]
    assert [is_cooperative(each) for each in BY_NAME.values()] == [False, False, True]
    assert all(isinstance(each, Assignor) for each in BY_NAME.values())


def test_range_gives_neighbours_and_the_rest_to_the_first() -> None:
    members = {"b": member("t", "u"), "a": member("t", "u"), "c": member("t")}
    assert RANGE.assign(members, {"t": 7, "u": 3}) == {
        "a": [("t", 0), ("t", 1), ("t", 2), ("u", 0), ("u", 1)],
        "b": [("t", 3), ("t", 4), ("u", 2)],
        "c": [("t", 5), ("t", 6)],
    }


def test_round_robin_deals_out_all_topics_and_passes_over_those_who_do_not_want_them() -> None:
    members = {"a": member("t"), "b": member("t", "u"), "c": member("u")}
    plan = ROUND_ROBIN.assign(members, {"t": 3, "u": 3})
    assert plan == {"a": [("t", 0), ("t", 2)], "b": [("t", 1), ("u", 0), ("u", 2)], "c": [("u", 1)]}


@pytest.mark.parametrize("assignor", [RANGE, ROUND_ROBIN])
def test_a_static_member_gets_the_same_under_a_new_id(assignor: Assignor) -> None:
    before = {"x": member("t", instance="one"), "y": member("t", instance="two"), "z": member("t")}
    after = {"a": member("t", instance="two"), "x": member("t", instance="one"), "z": member("t")}
    first, second = assignor.assign(before, {"t": 5}), assignor.assign(after, {"t": 5})
    assert (second["x"], second["a"], second["z"]) == (first["x"], first["y"], first["z"])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("assignor", BY_NAME.values(), ids=lambda each: each.name)
def test_whatever_is_subscribed_every_partition_has_one_owner_who_wants_it(assignor: Assignor, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(300):
        topics = {f"t{number}": chance.randint(0, 6) for number in range(chance.randint(1, 4))}
        members = {
            f"m{number}": member(*chance.sample(sorted(topics), chance.randint(0, len(topics))))
            for number in range(chance.randint(1, 5))
        }
        plan = owners(assignor.assign(members, topics))
        wanted = {topic for candidate in members.values() for topic in candidate.topics}
        assert set(plan) == {(topic, n) for topic, count in topics.items() if topic in wanted for n in range(count)}
        assert all(topic in members[name].topics for (topic, _), name in plan.items())


@pytest.mark.parametrize("seed", range(5))
def test_cooperative_sticky_is_even_and_moves_no_more_than_it_must(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(200):
        partitions = {"t": chance.randint(1, 12), "u": chance.randint(0, 5)}
        total = sum(partitions.values())
        members = {f"m{number}": member("t", "u") for number in range(chance.randint(1, 6))}
        before = owners(settle(members, partitions)[0])
        if chance.random() < 0.5 and len(members) > 1:
            del members[chance.choice(sorted(members))]
        else:
            members["new"] = member("t", "u")
        plan, rounds = settle(members, partitions)
        after = owners(plan)
        counts = Counter(dict.fromkeys(members, 0))
        counts.update(after.values())
        assert len(after) == total
        assert max(counts.values()) - min(counts.values()) <= 1
        # Whoever stays keeps what an even share allows.
        fair = total // len(members)
        must_move = sum(max(0, count - fair - 1) for count in Counter(before.values()).values())
        moved = sum(1 for key, name in after.items() if before[key] != name and before[key] in members)
        assert must_move <= moved <= fair + len(members)
        # One if partitions were free; one more to take them from their owners first; one to see that it is done.
        assert rounds <= 3


def test_cooperative_sticky_gives_nobody_what_another_still_owns() -> None:
    every = [("t", number) for number in range(4)]
    members = {"old": member("t", owned=every, generation=3), "new": member("t")}
    plan = COOPERATIVE_STICKY.assign(members, {"t": 4})
    assert (len(plan["old"]), plan["new"]) == (2, [])
    kept = plan["old"]
    again = {"old": member("t", owned=kept, generation=4), "new": member("t", generation=4)}
    assert COOPERATIVE_STICKY.assign(again, {"t": 4}) == {
        "old": kept,
        "new": [key for key in every if key not in kept],
    }


def test_of_two_who_claim_a_partition_the_later_generation_keeps_it_and_a_tie_nobody() -> None:
    members = {
        "late": member("t", owned=[("t", 0)], generation=5),
        "early": member("t", owned=[("t", 0), ("t", 1)], generation=4),
    }
    assert COOPERATIVE_STICKY.assign(members, {"t": 2}) == {"late": [("t", 0)], "early": [("t", 1)]}
    tied = {name: member("t", owned=[("t", 0)], generation=5) for name in ("a", "b")}
    assert COOPERATIVE_STICKY.assign(tied, {"t": 1}) == {"a": [], "b": []}


def test_what_is_gone_is_claimed_in_vain() -> None:
    members = {"a": member("t", owned=[("t", 0), ("t", 9), ("gone", 0)], generation=1)}
    assert COOPERATIVE_STICKY.assign(members, {"t": 2}) == {"a": [("t", 0), ("t", 1)]}


def test_unequal_subscriptions_are_evened_out_as_far_as_they_allow() -> None:
    members = {"a": member("t", "u"), "b": member("u"), "c": member("u")}
    plan, _ = settle(members, {"t": 3, "u": 6})
    assert {name: len(list(given)) for name, given in plan.items()} == {"a": 3, "b": 3, "c": 3}


def test_the_user_data_of_cooperative_sticky_is_the_generation_as_java_reads_it() -> None:
    assert COOPERATIVE_STICKY.user_data(frozenset({("t", 0)}), 17) == b"\x00\x00\x00\x11"
    assert COOPERATIVE_STICKY.user_data(frozenset(), -1) == b"\xff\xff\xff\xff"
