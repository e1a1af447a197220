"""What clients write into histories, and how recovery is read from them."""

import json
from pathlib import Path

import pytest

from tools.chaos.checker import Kind, check
from tools.chaos.clients.journal import Journal
from tools.chaos.history import Committed, Event, Fetched, Read, Sent, load
from tools.chaos.recovery import Acknowledgements, longest_pause, seconds_until_back

PLACE, OTHER = ("t", 0), ("t", 1)
FINAL = "final"


def test_a_journal_is_a_history_that_can_be_loaded(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    with Journal("c", path) as journal:
        value, number = journal.sending(PLACE)
        journal.sent(PLACE, value, number, "ok", 5)
        journal.committed("g", {PLACE: 6}, 1.0, "unknown")
        journal.fetched("g", {PLACE: -1}, 2.0)
    sent, committed, fetched = load([path])
    assert isinstance(sent, Sent)
    assert (sent.value, sent.number, sent.outcome, sent.offset) == ("c-1", 1, "ok", 5)
    assert sent.since is not None
    assert sent.since <= sent.at
    assert committed == Committed("c", committed.at, 1.0, "g", PLACE, 6, "unknown")
    assert fetched == Fetched("c", fetched.at, 2.0, "g", PLACE, -1)


def test_what_a_killed_client_was_sending_is_of_unknown_outcome_and_no_phantom(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    with Journal("c", path) as journal:
        journal.sending(PLACE)
    [sent] = load([path])
    assert isinstance(sent, Sent)
    assert sent.outcome == "unknown"
    assert check([sent, Read(FINAL, 9, PLACE, 0, 1, {0: "c-1"})], final=FINAL) == []


def test_a_message_that_failed_for_good_is_not_excused_by_having_been_sent(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    with Journal("c", path) as journal:
        journal.sent(PLACE, *journal.sending(PLACE), "failed")
    found = check([*load([path]), Read(FINAL, 9, PLACE, 0, 1, {0: "c-1"})], final=FINAL)
    assert [one.kind for one in found] == [Kind.ABORTED_READ]


def test_a_journal_shows_offsets_that_a_reader_passed_over_and_not_those_before_it_began(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with Journal("r", path) as journal:
        journal.read(PLACE, [(7, "a")])
        journal.read(PLACE, [(9, "b")])
        journal.began(PLACE)
        journal.read(PLACE, [(8, "c")])
        assert journal.positions() == {PLACE: 9}
    reads = [one for one in load([path]) if isinstance(one, Read)]
    assert [(one.first, one.end, one.sought) for one in reads] == [(7, 8, True), (8, 10, False), (8, 9, True)]


def acknowledged(place: tuple[str, int], since: float, at: float) -> Sent:
    return Sent("p", at, place, f"p-{at}", 1, "ok", 0, since)


def test_writes_are_back_when_the_last_partition_took_a_message_that_was_begun_after_the_fault() -> None:
    events: list[Event] = [
        acknowledged(PLACE, 9, 11),
        acknowledged(PLACE, 10, 12),
        acknowledged(OTHER, 10.5, 17),
        acknowledged(OTHER, 10.4, 16.5),
        Sent("p", 11, OTHER, "p-u", 2, "unknown", since=10.1),
    ]
    assert seconds_until_back(events, [PLACE, OTHER], 10) == pytest.approx(6.5)
    assert seconds_until_back(events, [PLACE, OTHER, ("t", 2)], 10) is None


def test_the_pause_is_the_longest_time_without_an_acknowledgement_that_ends_after_the_fault() -> None:
    events: list[Event] = [acknowledged(PLACE, at, at) for at in (1, 5, 9.5, 12, 12.5)]
    assert longest_pause(events, 10) == pytest.approx(2.5)


def test_acknowledgements_are_followed_while_they_are_written(tmp_path: Path) -> None:
    followed, path = Acknowledgements(tmp_path), tmp_path / "p.jsonl"
    line = {"client": "p", "topic": "t", "partition": 0, "value": "p-1", "number": 1}
    begun = json.dumps({**line, "at": 5.0, "did": "sending"}) + "\n"
    ended = json.dumps({**line, "at": 8.0, "did": "sent", "outcome": "ok", "offset": 0}) + "\n"
    path.write_text(begun + ended[:20])
    assert not followed.since(4.0, [PLACE])
    path.write_text(begun + ended)
    assert followed.since(4.0, [PLACE])
    assert not followed.since(5.0, [PLACE])
    assert not followed.since(4.0, [PLACE, OTHER])


def test_the_group_is_back_when_a_commit_was_sent_after_the_fault_and_acknowledged(tmp_path: Path) -> None:
    followed = Acknowledgements(tmp_path)
    with Journal("m", tmp_path / "m.jsonl") as journal:
        journal.committed("g", {PLACE: 1}, 9.0, "ok")
        journal.committed("g", {PLACE: 2}, 11.0, "unknown")
        assert not followed.committed_since(10.0)
        journal.committed("g", {PLACE: 2}, 12.0, "ok")
        assert followed.committed_since(10.0)
