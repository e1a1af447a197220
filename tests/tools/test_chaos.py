"""The checker finds each kind of anomaly in a history that is sound but for one seeded lie."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tools.chaos.checker import Kind, check
from tools.chaos.history import Committed, Event, Fetched, HistoryError, Owned, Read, Recreated, Sent, load

PLACE = ("orders", 0)
FINAL = "the last reader"


def sound(random: Random) -> list[Event]:
    """Two producers, of which some messages fail and some have an unknown outcome; readers that share the log."""
    log: list[str] = []
    events: list[Event] = []
    numbers = {"p1": 0, "p2": 0}
    for at in range(60):
        client = random.choice(("p1", "p2"))
        numbers[client] += 1
        value = f"{client}-{numbers[client]}"
        fate = random.random()
        offset = len(log)
        if fate < 0.8:
            log.append(value)
            events.append(Sent(client, at, PLACE, value, numbers[client], "ok", offset))
        elif fate < 0.9:
            events.append(Sent(client, at, PLACE, value, numbers[client], "failed"))
        else:
            if random.random() < 0.5:
                log.append(value)
            events.append(Sent(client, at, PLACE, value, numbers[client], "unknown"))
    for reader in ("r1", FINAL):
        position = 0
        while position < len(log):
            end = min(position + random.randint(1, 9), len(log))
            events.append(Read(reader, 100, PLACE, position, end, dict(enumerate(log[position:end], position))))
            position = end
    for turn in range(5):
        events.append(Committed("r1", turn + 0.5, turn, "g", PLACE, 10 * turn, "ok"))
        events.append(Fetched("r1", turn + 0.9, turn + 0.6, "g", PLACE, 10 * turn))
        events.append(Owned(f"m{turn % 2}", turn, "g", turn, PLACE))
    return events


def acknowledged(events: list[Event], random: Random) -> Sent:
    return random.choice([one for one in events if isinstance(one, Sent) and one.outcome == "ok"])


def edit_reads(events: list[Event], change: Callable[[Read], Read]) -> list[Event]:
    return [change(event) if isinstance(event, Read) else event for event in events]


def lose(events: list[Event], random: Random) -> list[Event]:
    gone = acknowledged(events, random).offset
    return edit_reads(events, lambda read: replace(read, values={o: v for o, v in read.values.items() if o != gone}))


def lose_the_end(events: list[Event], random: Random) -> list[Event]:
    last = max(one.offset or 0 for one in events if isinstance(one, Sent) and one.outcome == "ok")

    def cut(read: Read) -> Read:
        return replace(read, end=min(read.end, last), values={o: v for o, v in read.values.items() if o < last})

    return edit_reads(events, cut)


def lose_without_offset(events: list[Event], random: Random) -> list[Event]:
    gone = acknowledged(events, random)
    told = [replace(event, offset=None) if event is gone else event for event in events]
    return edit_reads(
        told, lambda read: replace(read, values={o: v for o, v in read.values.items() if v != gone.value})
    )


def double(events: list[Event], random: Random) -> list[Event]:
    again, end = acknowledged(events, random), max(one.end for one in events if isinstance(one, Read))
    return [*events, Read(FINAL, 200, PLACE, end, end + 1, {end: again.value})]


def change_an_offset(events: list[Event], random: Random) -> list[Event]:
    other = acknowledged(events, random)
    assert other.offset is not None
    values = {other.offset: "p9-1"}
    return [
        *events,
        Sent("p9", 0, PLACE, "p9-1", 1, "unknown"),
        Read("r9", 9, PLACE, other.offset, other.offset + 1, values),
    ]


def read_a_failure(events: list[Event], random: Random) -> list[Event]:
    failed = acknowledged(events, random)
    return [replace(event, outcome="failed", offset=None) if event is failed else event for event in events]


def read_what_was_not_sent(events: list[Event], random: Random) -> list[Event]:
    unsent = acknowledged(events, random)
    return [event for event in events if event is not unsent]


def read_again(events: list[Event], random: Random) -> list[Event]:
    reads = [one for one in events if isinstance(one, Read) and one.client == "r1"]
    return [*events, random.choice(reads[:-1])]


def swap(events: list[Event], random: Random) -> list[Event]:
    """Two messages of one producer change places, in what it was told and in what is read."""
    mine = [one for one in events if isinstance(one, Sent) and one.outcome == "ok" and one.client == "p1"]
    first, second = sorted(random.sample(mine, 2), key=lambda one: one.number)
    places = {first.value: second.offset, second.value: first.offset}
    named = {first.offset: second.value, second.offset: first.value}
    told = [
        replace(event, offset=places[event.value]) if isinstance(event, Sent) and event.value in places else event
        for event in events
    ]
    return edit_reads(told, lambda read: replace(read, values={o: named.get(o, v) for o, v in read.values.items()}))


def commit_back(events: list[Event], random: Random) -> list[Event]:
    return [*events, Fetched("r2", 9.0, 8.0, "g", PLACE, 30)]


def own_twice(events: list[Event], random: Random) -> list[Event]:
    return [*events, Owned("m9", 9, "g", random.randrange(5), PLACE)]


def recreate(events: list[Event], since: float, at: float) -> list[Event]:
    """The topic was deleted and created again in this time, and has all that was written after it."""
    old = [one for one in events if isinstance(one, Sent) and one.at < since and one.outcome != "failed"]
    written = [one for one in events if isinstance(one, Read) and one.client == FINAL]
    log = [value for read in written for value in read.values.values() if value not in {one.value for one in old}]
    sent = [
        replace(one, offset=log.index(one.value)) if isinstance(one, Sent) and one.value in log and one.offset else one
        for one in events
        if not isinstance(one, Read)
    ]
    gone = [Read("r1", since - 1, PLACE, read.first, read.end, read.values) for read in old_reads(events, old)]
    return [
        *sent,
        *gone,
        Recreated("stage", at, since, PLACE),
        Read(FINAL, 100, PLACE, 0, len(log), dict(enumerate(log))),
    ]


def old_reads(events: list[Event], old: list[Sent]) -> list[Read]:
    """What a reader got of the topic that was deleted, as far as it came."""
    values = {one.value for one in old}
    reads = [one for one in events if isinstance(one, Read) and one.client == "r1"]
    return [one for one in reads if set(one.values.values()) <= values]


def keep_an_old_record(events: list[Event], random: Random) -> list[Event]:
    told = recreate(events, 30.5, 32.5)
    kept = random.choice([one for one in told if isinstance(one, Sent) and one.at < 30 and one.outcome == "ok"])
    return [*told, Read(FINAL, 101, PLACE, 900, 901, {900: kept.value})]


LIES = {
    Kind.LOST: lose,
    Kind.UNSEEN: lose_the_end,
    Kind.DUPLICATE: double,
    Kind.INCONSISTENT_OFFSETS: change_an_offset,
    Kind.ABORTED_READ: read_a_failure,
    Kind.PHANTOM: read_what_was_not_sent,
    Kind.NON_MONOTONIC: read_again,
    Kind.ORDER_BROKEN: swap,
    Kind.COMMITTED_BACK: commit_back,
    Kind.OWNED_TWICE: own_twice,
    Kind.OLD_RECORD: keep_an_old_record,
}


@pytest.mark.parametrize("seed", range(20))
def test_a_sound_history_has_no_anomaly(seed: int) -> None:
    assert check(sound(Random(seed)), final=FINAL) == []


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", Kind)
def test_a_seeded_lie_of_each_kind_is_found_by_its_name(kind: Kind, seed: int) -> None:
    random = Random(seed)
    found = {anomaly.kind for anomaly in check(LIES[kind](sound(random), random), final=FINAL)}
    assert found == {kind}


@pytest.mark.parametrize("seed", range(10))
def test_a_message_is_lost_too_if_its_producer_was_told_no_offset(seed: int) -> None:
    random = Random(seed)
    events = lose_without_offset(sound(random), random)
    assert {anomaly.kind for anomaly in check(events, final=FINAL)} == {Kind.LOST}


@pytest.mark.parametrize("seed", range(20))
def test_a_topic_that_was_deleted_and_created_again_begins_anew(seed: int) -> None:
    assert check(recreate(sound(Random(seed)), 30.5, 32.5), final=FINAL) == []


@pytest.mark.parametrize("seed", range(10))
def test_what_was_acknowledged_to_the_topic_that_was_created_again_must_be_there(seed: int) -> None:
    random = Random(seed)
    told = recreate(sound(random), 30.5, 32.5)
    gone = random.choice([one for one in told if isinstance(one, Sent) and one.at > 33 and one.outcome == "ok"])
    events = edit_reads(
        told, lambda read: replace(read, values={o: v for o, v in read.values.items() if v != gone.value})
    )
    assert {anomaly.kind for anomaly in check(events, final=FINAL)} == {Kind.LOST}


def test_what_was_under_way_when_a_topic_was_deleted_may_be_in_either_topic_or_in_none() -> None:
    events: list[Event] = [
        Sent("p", 6, PLACE, "p-1", 1, "ok", 40, since=4),
        Sent("p", 7, PLACE, "p-2", 2, "ok", 0, since=5.5),
        Recreated("stage", 8, 5, PLACE),
        Committed("m", 6, 5.5, "g", PLACE, 40, "ok"),
        Fetched("m", 10, 9, "g", PLACE, -1),
    ]
    for values in ({}, {0: "p-1", 1: "p-2"}):
        assert check([*events, Read(FINAL, 100, PLACE, 0, 2, values)], final=FINAL) == []


@pytest.mark.parametrize("seed", range(10))
def test_a_topic_that_was_deleted_had_all_of_its_records_until_then(seed: int) -> None:
    random = Random(seed)
    told = recreate(sound(random), 50.5, 52.5)
    read = {value for one in told if isinstance(one, Read) and one.client == "r1" for value in one.values.values()}
    gone = random.choice([one for one in told if isinstance(one, Sent) and one.value in read and one.outcome == "ok"])
    events = edit_reads(
        told, lambda read: replace(read, values={o: v for o, v in read.values.items() if v != gone.value})
    )
    assert {anomaly.kind for anomaly in check(events, final=FINAL)} == {Kind.LOST}


def test_a_lower_offset_is_no_anomaly_if_its_commit_ran_beside_the_last_one() -> None:
    commits: list[Event] = [
        Committed("a", 2.0, 1.0, "g", PLACE, 20, "ok"),
        Committed("b", 2.5, 1.5, "g", PLACE, 10, "unknown"),
    ]
    assert check([*commits, Fetched("a", 4.0, 3.0, "g", PLACE, 10)], final=FINAL) == []


def test_a_reader_may_go_back_on_purpose() -> None:
    reads: list[Event] = [
        Sent("p", 0, PLACE, "p-1", 1, "ok", 0),
        Read(FINAL, 1, PLACE, 0, 1, {0: "p-1"}),
        Read(FINAL, 2, PLACE, 0, 1, {0: "p-1"}, sought=True),
    ]
    assert check(reads, final=FINAL) == []


LINES = [
    {"did": "sent", "topic": "t", "partition": 0, "value": "c-1", "number": 1, "outcome": "ok", "offset": 0},
    {"did": "read", "topic": "t", "partition": 0, "first": 0, "end": 1, "values": {"0": "c-1"}, "sought": True},
    {"did": "committed", "group": "g", "topic": "t", "partition": 0, "offset": 1, "since": 1.0, "outcome": "unknown"},
    {"did": "fetched", "group": "g", "topic": "t", "partition": 0, "offset": -1, "since": 1.0},
    {"did": "owned", "group": "g", "generation": 3, "topic": "t", "partition": 0},
    {"did": "recreated", "topic": "t", "partition": 0, "since": 1.0},
]


def test_histories_are_lines_of_json_of_which_the_last_may_be_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    lines = [json.dumps({"client": "c", "at": 2.0, **line}) for line in LINES]
    path.write_text("\n".join([*lines, lines[0][:20]]))
    assert load([path]) == [
        Sent("c", 2.0, ("t", 0), "c-1", 1, "ok", 0),
        Read("c", 2.0, ("t", 0), 0, 1, {0: "c-1"}, sought=True),
        Committed("c", 2.0, 1.0, "g", ("t", 0), 1, "unknown"),
        Fetched("c", 2.0, 1.0, "g", ("t", 0), -1),
        Owned("c", 2.0, "g", 3, ("t", 0)),
        Recreated("c", 2.0, 1.0, ("t", 0)),
    ]


@pytest.mark.parametrize(
    "line", ["{", '{"did": "sent"}', '{"client": "c", "at": 1, "topic": "t", "partition": 0, "did": "slept"}']
)
def test_a_line_that_is_no_event_is_named(line: str, tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(HistoryError, match="line 1"):
        load([path])
