"""A client writes its history by a journal: each line is in the file before the client goes on."""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tools.chaos.history import Outcome, Place


class Journal:
    def __init__(self, client: str, path: Path) -> None:
        self.client = client
        self._file = path.open("a", buffering=1)
        self._number = 0
        # Where the next read of each partition begins, if the client goes on from there.
        self._positions: dict[Place, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def sending(self, place: Place) -> tuple[str, int]:
        """A new message: its value and its number. The line is there before the message is handed to a library."""
        self._number += 1
        value = f"{self.client}-{self._number}"
        self._write("sending", place, value=value, number=self._number)
        return value, self._number

    def sent(self, place: Place, value: str, number: int, outcome: Outcome, offset: int | None = None) -> None:
        told = {} if offset is None else {"offset": offset}
        self._write("sent", place, value=value, number=number, outcome=outcome, **told)

    def began(self, place: Place) -> None:
        """The client begins to read a partition, at an offset that may be any."""
        self._positions.pop(place, None)

    def read(self, place: Place, found: Sequence[tuple[int, str]]) -> None:
        """Offsets and values, as they came, after what was read before."""
        first, end = self._positions.get(place, found[0][0]), found[-1][0] + 1
        sought: dict[str, Any] = {} if place in self._positions else {"sought": True}
        values = {str(offset): value for offset, value in found}
        self._write("read", place, first=first, end=end, values=values, **sought)
        self._positions[place] = end

    def positions(self) -> dict[Place, int]:
        return dict(self._positions)

    def committed(self, group: str, offsets: Mapping[Place, int], since: float, outcome: Outcome) -> None:
        for place, offset in offsets.items():
            self._write("committed", place, group=group, offset=offset, since=since, outcome=outcome)

    def fetched(self, group: str, offsets: Mapping[Place, int], since: float) -> None:
        for place, offset in offsets.items():
            self._write("fetched", place, group=group, offset=offset, since=since)

    def recreated(self, places: Iterable[Place], since: float) -> None:
        for place in places:
            self._write("recreated", place, since=since)

    def _write(self, did: str, place: Place, **facts: Any) -> None:
        line = {"at": time.monotonic(), "client": self.client, "did": did, "topic": place[0], "partition": place[1]}
        self._file.write(json.dumps({**line, **facts}) + "\n")
