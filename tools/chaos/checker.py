"""The checker finds anomalies in the histories of a run, by the names that the field has for them.

A run ends with a client that reads every partition from its start to its end: `final` is that client's name.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from operator import attrgetter

from tools.chaos.history import Committed, Event, Fetched, Owned, Place, Read, Recreated, Sent


class Kind(StrEnum):
    LOST = "lost"
    """It was acknowledged, and a reader that passed its offset did not get it."""
    UNSEEN = "unseen"
    """It was acknowledged, and the last reader did not get as far as its offset."""
    DUPLICATE = "duplicate"
    """A value that was sent once is at two offsets."""
    INCONSISTENT_OFFSETS = "inconsistent offsets"
    """An offset had two values, by what readers got or by what producers were told."""
    ABORTED_READ = "aborted read"
    """It was read, and its producer was told that it had failed for good."""
    PHANTOM = "phantom"
    """It was read, and no producer has sent it."""
    NON_MONOTONIC = "non-monotonic"
    """A reader that went on from where it was got offsets that it had passed."""
    ORDER_BROKEN = "order broken"
    """Messages of one producer are in another order than it sent them in."""
    COMMITTED_BACK = "offset committed back"
    """A group's offset was lower than one whose commit had been acknowledged before it was asked for."""
    OWNED_TWICE = "owned twice"
    """Two members of a group had a partition in one generation."""
    OLD_RECORD = "record of a deleted topic"
    """It was acknowledged before its topic was deleted, and is in the topic that was created by the same name."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    kind: Kind
    text: str


def check(events: Iterable[Event], *, final: str) -> list[Anomaly]:
    """What was deleted and created again is looked at as two topics, of which only the second is there in the end."""
    told = list(events)
    recreated = {one.place: one for one in told if isinstance(one, Recreated)}
    before: list[Event] = []
    after: list[Event] = []
    found: list[Anomaly] = []
    for event in told:
        if isinstance(event, Recreated):
            continue
        if (change := recreated.get(event.place)) is None:
            after.append(event)
            continue
        before += _before(event, change)
        after += _after(event, change, final)
    if recreated:
        after = _without_old(before, after, found)
    return [*found, *_check(before, None), *_check(after, final)]


def _before(event: Event, change: Recreated) -> Iterator[Event]:
    """What is certain of a topic that was deleted: what was over when that was asked for."""
    if isinstance(event, Sent):
        if _began(event) < change.since:
            yield event if event.at < change.since else _weakened(event)
    elif event.at < change.since:
        yield event


def _after(event: Event, change: Recreated, final: str) -> Iterator[Event]:
    """What is certain of the topic that was created. A reader may have had something of the other one in hand for a
    while, but for the last one."""
    match event:
        case Sent() if _began(event) > change.at:
            yield event
        case Sent() if event.at >= change.since or event.outcome != "ok":
            yield _weakened(event)
        case Read() if event.client == final:
            yield event
        case Committed() if event.at >= change.since:
            yield event if event.since > change.at else replace(event, outcome="unknown")
        case Fetched() if event.since > change.at:
            yield event


def _began(sent: Sent) -> float:
    return sent.at if sent.since is None else sent.since


def _weakened(sent: Sent) -> Sent:
    """It may be in either topic, or in none."""
    return sent if sent.outcome == "failed" else replace(sent, outcome="unknown", offset=None)


def _without_old(before: list[Event], after: list[Event], found: list[Anomaly]) -> list[Event]:
    """Without the records of a deleted topic, which are named."""
    old = {(one.place, one.value) for one in before if isinstance(one, Sent) and one.outcome == "ok"}

    def sort_out(read: Read) -> Read:
        there = {offset: value for offset, value in read.values.items() if (read.place, value) in old}
        for offset, value in there.items():
            found.append(Anomaly(Kind.OLD_RECORD, f"{read.client} read {value} at {_name(read.place)}@{offset}"))
        return replace(read, values={offset: read.values[offset] for offset in read.values if offset not in there})

    return [sort_out(event) if isinstance(event, Read) else event for event in after]


def _check(events: Iterable[Event], final: str | None) -> list[Anomaly]:
    sent: list[Sent] = []
    reads: list[Read] = []
    offsets: list[Committed | Fetched] = []
    owned: list[Owned] = []
    for event in events:
        match event:
            case Sent():
                sent.append(event)
            case Read():
                reads.append(event)
            case Owned():
                owned.append(event)
            case Committed() | Fetched():
                offsets.append(event)
    return [
        *_inconsistent(sent, reads),
        *_lost(sent, reads, final),
        *_duplicates(reads),
        *_never_written(sent, reads),
        *_non_monotonic(reads),
        *_out_of_order(sent, reads),
        *_committed_back(offsets),
        *_owned_twice(owned),
    ]


def _inconsistent(sent: list[Sent], reads: list[Read]) -> Iterator[Anomaly]:
    found: dict[tuple[Place, int], dict[str, None]] = defaultdict(dict)
    for one in sent:
        if one.offset is not None and one.outcome == "ok":
            found[one.place, one.offset][one.value] = None
    for read in reads:
        for offset, value in read.values.items():
            found[read.place, offset][value] = None
    for (place, offset), values in found.items():
        if len(values) > 1:
            yield Anomaly(Kind.INCONSISTENT_OFFSETS, f"{_name(place)}@{offset} has been {' and '.join(values)}")


def _lost(sent: list[Sent], reads: list[Read], final: str | None) -> Iterator[Anomaly]:
    """A producer that was not told an offset is asked only for its value, at the last reader, if there was one."""
    by_place: dict[Place, list[Read]] = defaultdict(list)
    for read in reads:
        by_place[read.place].append(read)
    last_end = {read.place: read.end for read in reads if read.client == final}
    last_values = {(read.place, value) for read in reads if read.client == final for value in read.values.values()}
    for one in sent:
        if one.outcome != "ok":
            continue
        offset = one.offset
        what = f"{one.value}, acknowledged to {one.client} at {_name(one.place)}@{offset}"
        if offset is None:
            if final is not None and (one.place, one.value) not in last_values:
                yield Anomaly(Kind.LOST, f"{what}, is not there in the end")
            continue
        if final is not None and offset >= last_end.get(one.place, 0):
            yield Anomaly(Kind.UNSEEN, f"{what}, is after the end that was read, {last_end.get(one.place, 0)}")
        passed = next((r for r in by_place[one.place] if r.first <= offset < r.end and offset not in r.values), None)
        if passed is not None:
            yield Anomaly(Kind.LOST, f"{what}, was not there when {passed.client} read {passed.first} to {passed.end}")


def _duplicates(reads: list[Read]) -> Iterator[Anomaly]:
    offsets: dict[tuple[Place, str], set[int]] = defaultdict(set)
    for read in reads:
        for offset, value in read.values.items():
            offsets[read.place, value].add(offset)
    for (place, value), found in offsets.items():
        if len(found) > 1:
            yield Anomaly(Kind.DUPLICATE, f"{value} is in {_name(place)} at {sorted(found)}")


def _never_written(sent: list[Sent], reads: list[Read]) -> Iterator[Anomaly]:
    outcomes: dict[tuple[Place, str], set[str]] = defaultdict(set)
    for one in sent:
        outcomes[one.place, one.value].add(one.outcome)
    told = set()
    for read in reads:
        for offset, value in read.values.items():
            known = outcomes.get((read.place, value), set())
            if (known and known != {"failed"}) or (read.place, value) in told:
                continue
            told.add((read.place, value))
            kind = Kind.ABORTED_READ if known else Kind.PHANTOM
            yield Anomaly(kind, f"{read.client} read {value} at {_name(read.place)}@{offset}")


def _non_monotonic(reads: list[Read]) -> Iterator[Anomaly]:
    """The reads of a client are in the order in which it made them."""
    ends: dict[tuple[str, Place], int] = {}
    for read in reads:
        key = (read.client, read.place)
        lowest = min(read.values, default=read.first)
        if not read.sought and lowest < ends.get(key, 0):
            text = f"{read.client} was at {ends[key]} of {_name(read.place)}, and then got {lowest}"
            yield Anomaly(Kind.NON_MONOTONIC, text)
        found = list(read.values)
        if any(after <= before for before, after in pairwise(found)):
            yield Anomaly(Kind.NON_MONOTONIC, f"{read.client} got {found} of {_name(read.place)} in this order")
        ends[key] = read.end


def _out_of_order(sent: list[Sent], reads: list[Read]) -> Iterator[Anomaly]:
    """Of a value that is there twice the first counts."""
    numbers = {(one.place, one.value): (one.client, one.number) for one in sent}
    logs: dict[Place, dict[int, str]] = defaultdict(dict)
    for read in reads:
        logs[read.place].update(read.values)
    for place, log in logs.items():
        newest: dict[str, int] = {}
        first_offsets = {value: offset for offset, value in sorted(log.items(), reverse=True)}
        for offset in sorted(first_offsets.values()):
            client, number = numbers.get((place, log[offset]), ("", 0))
            if number < newest.get(client, number):
                text = f"{log[offset]} is at {_name(place)}@{offset}, after number {newest[client]} of {client}"
                yield Anomaly(Kind.ORDER_BROKEN, text)
            newest[client] = max(number, newest.get(client, number))


def _committed_back(offsets: list[Committed | Fetched]) -> Iterator[Anomaly]:
    """A commit whose answer came before the question was asked must be seen by it, or a later one. A commit to a lower
    offset that has begun since, acknowledged or not, explains a lower one."""
    by_group: dict[tuple[str, Place], list[Committed | Fetched]] = defaultdict(list)
    for one in offsets:
        by_group[one.group, one.place].append(one)
    for (group, place), events in by_group.items():
        commits = sorted((one for one in events if isinstance(one, Committed)), key=attrgetter("at"))
        for asked in (one for one in events if isinstance(one, Fetched)):
            before = [one for one in commits if one.outcome == "ok" and one.at <= asked.since]
            if not before or asked.offset >= before[-1].offset:
                continue
            last = before[-1]
            # Whatever ran beside the last of them may have come after it.
            if any(one.offset == asked.offset and one.outcome != "failed" and one.at >= last.since for one in commits):
                continue
            text = f"{group} had {_name(place)}@{asked.offset} after a commit of {last.offset} was acknowledged"
            yield Anomaly(Kind.COMMITTED_BACK, text)


def _owned_twice(owned: list[Owned]) -> Iterator[Anomaly]:
    owners: dict[tuple[str, int, Place], dict[str, None]] = defaultdict(dict)
    for one in owned:
        owners[one.group, one.generation, one.place][one.client] = None
    for (group, generation, place), clients in owners.items():
        if len(clients) > 1:
            text = f"{' and '.join(clients)} owned {_name(place)} in generation {generation} of {group}"
            yield Anomaly(Kind.OWNED_TWICE, text)


def _name(place: Place) -> str:
    return f"{place[0]}-{place[1]}"
