"""A history is what the clients of a run did and were told, one JSON object a line, in the order of each client.

A line says when it was written (`at`, seconds of a clock that all processes of the machine share), by which client, and
one of these:

    {"did": "sending", "topic": "t", "partition": 0, "value": "c1-7", "number": 7}
    {"did": "sent", "topic": "t", "partition": 0, "value": "c1-7", "number": 7, "outcome": "ok", "offset": 12}
    {"did": "read", "topic": "t", "partition": 0, "first": 10, "values": {"10": "c1-5", "12": "c1-7"}, "end": 13}
    {"did": "committed", "group": "g", "topic": "t", "partition": 0, "offset": 13, "since": 4.1, "outcome": "ok"}
    {"did": "fetched", "group": "g", "topic": "t", "partition": 0, "offset": 13, "since": 4.2}
    {"did": "owned", "group": "g", "generation": 3, "topic": "t", "partition": 0}
    {"did": "recreated", "topic": "t", "partition": 0, "since": 5.0}

Outcomes are `ok`, `failed` (it has certainly not happened) and `unknown`. A message that was sending when its client
was killed has no other line: its outcome is unknown. A read that begins where the client chose to, and not where its
last one ended, has `"sought": true`. `since` is when the request left, `at` when its answer came. A topic was recreated
from when it was asked to be deleted until all brokers knew another by its name.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

Outcome: TypeAlias = Literal["ok", "failed", "unknown"]
Place: TypeAlias = tuple[str, int]
"""A topic, and the number of one of its partitions."""


@dataclass(frozen=True, slots=True)
class Sent:
    client: str
    at: float
    place: Place
    value: str
    number: int
    """Grows with every message of the client, in the order in which it sent them."""
    outcome: Outcome
    offset: int | None = None
    since: float | None = None
    """When the client began to send it, if it says so."""


@dataclass(frozen=True, slots=True)
class Read:
    """All that is from `first` up to `end`, which need not be a value for each offset."""

    client: str
    at: float
    place: Place
    first: int
    end: int
    values: dict[int, str]
    sought: bool = False


@dataclass(frozen=True, slots=True)
class Committed:
    client: str
    at: float
    since: float
    group: str
    place: Place
    offset: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Fetched:
    """The offset that a group has committed, as the coordinator says; -1 for none."""

    client: str
    at: float
    since: float
    group: str
    place: Place
    offset: int


@dataclass(frozen=True, slots=True)
class Owned:
    client: str
    at: float
    group: str
    generation: int
    place: Place


@dataclass(frozen=True, slots=True)
class Recreated:
    """The topic was deleted, and another created by its name."""

    client: str
    at: float
    since: float
    place: Place


Event: TypeAlias = Sent | Read | Committed | Fetched | Owned | Recreated


class HistoryError(Exception):
    """A line is not part of a history. The last line of a client that was killed may be cut off, and is no error."""


def load(paths: Iterable[Path]) -> list[Event]:
    """The histories of several clients."""
    return [event for path in paths for event in _lines(path)]


def _lines(path: Path) -> Iterator[Event]:
    lines = path.read_text().split("\n")
    begun: dict[tuple[Place, str], Sent] = {}
    # What follows the last end of a line was cut off with its client.
    for number, line in enumerate(lines[:-1], 1):
        try:
            told = json.loads(line)
            event = parse(told)
        except (KeyError, TypeError, ValueError) as error:
            raise HistoryError(f"{path}, line {number}: {error!r}") from None
        if told["did"] == "sending":
            assert isinstance(event, Sent)
            begun[event.place, event.value] = event
        elif isinstance(event, Sent) and (began := begun.pop((event.place, event.value), None)):
            yield replace(event, since=began.at)
        else:
            yield event
    yield from begun.values()


def parse(line: dict[str, Any]) -> Event:
    """A message that is sending is as one whose outcome is unknown, until the line of its outcome."""
    client, at, place = line["client"], line["at"], (line["topic"], line["partition"])
    match line["did"]:
        case "sending":
            return Sent(client, at, place, line["value"], line["number"], "unknown", since=at)
        case "sent":
            return Sent(client, at, place, line["value"], line["number"], line["outcome"], line.get("offset"))
        case "read":
            values = {int(offset): value for offset, value in line["values"].items()}
            return Read(client, at, place, line["first"], line["end"], values, line.get("sought", False))
        case "committed":
            return Committed(client, at, line["since"], line["group"], place, line["offset"], line["outcome"])
        case "fetched":
            return Fetched(client, at, line["since"], line["group"], place, line["offset"])
        case "owned":
            return Owned(client, at, line["group"], line["generation"], place)
        case "recreated":
            return Recreated(client, at, line["since"], place)
        case other:
            raise ValueError(f"{other!r} is nothing that a client does")
