"""The cells of the error table: which sends there are, what becomes of each, and how a table is kept in a file."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

BROKERS = 3
UP = (3, 2, 1)
"""How many brokers are up, in the order in which a walk comes through: it is the last one that is stopped."""
MIN_ISR = (1, 2, 3)
MODES = ("0", "1", "all", "all, idempotent")
"""What a producer asks for: its acks, and whether it is idempotent."""
WIRE = "wire"
"""Instead of a client: a Produce request of our own, of which the error code itself is seen."""
CLIENTS = (WIRE, "confluent-kafka", "kafka-python", "aiokafka", "java")
SENT = "sent"
"""The outcome of a send with acks=0 that the client takes for done. Any other is `offset` and a number, or the name of
an error."""
# It sends again for as long as it is idempotent, and cannot be told not to.
LEFT_OUT = {("aiokafka", "all, idempotent")}


class Target(NamedTuple):
    topic: str
    partition: int


class Row(NamedTuple):
    """A line of the table: brokers up, the topic's min.insync.replicas, and the producer's mode."""

    up: int
    min_isr: int
    mode: str

    def __str__(self) -> str:
        return f"{self.up} up, min.insync.replicas={self.min_isr}, acks={self.mode}"


@dataclass(frozen=True, slots=True)
class Table:
    server: str
    versions: Mapping[str, str]
    """Of the clients."""
    sends: dict[Row, dict[str, str]] = field(default_factory=dict)
    """What becomes of a send, by client."""
    answers: dict[int, dict[str, str]] = field(default_factory=dict)
    """By brokers up: what brokers answer to other requests."""

    def differences(self, other: "Table") -> Iterator[tuple[str, str, str, str]]:
        """Where two tables differ: the row, the column, and what each of them has there."""
        for row in (*self.sends, *(row for row in other.sends if row not in self.sends)):
            yield from _differences(str(row), self.sends.get(row, {}), other.sends.get(row, {}))
        for up in (*self.answers, *(up for up in other.answers if up not in self.answers)):
            yield from _differences(f"{up} up", self.answers.get(up, {}), other.answers.get(up, {}))

    def write(self, path: Path) -> None:
        told = {
            "server": self.server,
            "clients": dict(self.versions),
            "sends": [{**row._asdict(), "outcomes": outcomes} for row, outcomes in self.sends.items()],
            "answers": {str(up): answers for up, answers in self.answers.items()},
        }
        path.write_text(json.dumps(told, indent=2) + "\n")

    @classmethod
    def read(cls, path: Path) -> "Table":
        told: dict[str, Any] = json.loads(path.read_text())
        sends = {Row(each["up"], each["min_isr"], each["mode"]): each["outcomes"] for each in told["sends"]}
        answers = {int(up): answers for up, answers in told["answers"].items()}
        return cls(told["server"], told["clients"], sends, answers)


def topic_of(min_isr: int) -> str:
    return f"min-isr-{min_isr}"


def modes_of(client: str) -> Sequence[str]:
    return [mode for mode in MODES if (client, mode) not in LEFT_OUT]


def target(client: str, min_isr: int, mode: str) -> Target:
    """Each cell has a partition of its own, so that its offsets say how many of its sends were written."""
    return Target(topic_of(min_isr), CLIENTS.index(client) * len(MODES) + MODES.index(mode))


SPARE = len(CLIENTS) * len(MODES)
"""The partition for sends that are no cell."""
PARTITIONS = SPARE + 1


def _differences(row: str, one: Mapping[str, str], other: Mapping[str, str]) -> Iterator[tuple[str, str, str, str]]:
    for column in (*one, *(column for column in other if column not in one)):
        mine, its = one.get(column, "nothing"), other.get(column, "nothing")
        if mine != its:
            yield row, column, mine, its
