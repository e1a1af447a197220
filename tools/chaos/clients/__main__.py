"""`python -m tools.chaos.clients KIND …` is one client of a round, until it gets SIGTERM."""

import argparse
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Final

from tools.chaos.clients import confluent, own
from tools.chaos.clients.journal import Journal
from tools.chaos.clients.work import Work, ending

KINDS: Final[dict[str, Callable[[Work, Journal, Event], None]]] = {
    "confluent-producer": confluent.produce,
    "confluent-member": confluent.join,
    "own-producer": own.produce,
    "own-hasty": own.produce_hastily,
    "own-once": own.produce_once,
    "own-beside": own.produce_beside,
    "own-reader": own.read,
    "own-member": own.join,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.chaos.clients", description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--client", required=True, help="its name in histories")
    parser.add_argument("--history", type=Path, required=True)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--group", required=True)
    asked = parser.parse_args()
    work = Work(asked.client, asked.bootstrap, asked.topic, asked.partitions, asked.group)
    with Journal(asked.client, asked.history) as journal:
        KINDS[asked.kind](work, journal, ending())


if __name__ == "__main__":
    main()
