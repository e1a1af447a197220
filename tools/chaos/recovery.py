"""How long writes were away: by the acknowledgements in the histories of producers, while a round goes on and after."""

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from tools.chaos.history import Event, Place, Sent


@dataclass(slots=True)
class Acknowledgements:
    """Follows histories that are being written. A message counts from when its client began to send it."""

    folder: Path
    _read: dict[Path, int] = field(default_factory=dict)
    _begun: dict[str, float] = field(default_factory=dict)
    _newest: dict[Place, float] = field(default_factory=dict)
    _newest_commit: float = 0.0

    def since(self, moment: float, places: Iterable[Place]) -> bool:
        """Whether every partition has acknowledged a message that was begun after this moment."""
        self._follow()
        return all(self._newest.get(place, 0.0) > moment for place in places)

    def committed_since(self, moment: float) -> bool:
        """Whether a member of the group has committed what it read, in a request that it sent after this moment."""
        self._follow()
        return self._newest_commit > moment

    def _follow(self) -> None:
        for path in self.folder.glob("*.jsonl"):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                whole = file.read().rpartition(b"\n")[0]
            if whole:
                self._read[path] = self._read.get(path, 0) + len(whole) + 1
                for line in whole.split(b"\n"):
                    self._note(json.loads(line))

    def _note(self, line: dict[str, Any]) -> None:
        if line["did"] == "committed" and line["outcome"] == "ok":
            self._newest_commit = max(line["since"], self._newest_commit)
        elif line["did"] == "sending":
            self._begun[line["value"]] = line["at"]
        elif line["did"] == "sent" and (began := self._begun.pop(line["value"], None)) and line["outcome"] == "ok":
            place = (line["topic"], line["partition"])
            self._newest[place] = max(began, self._newest.get(place, 0.0))


def seconds_until_back(events: Iterable[Event], places: Iterable[Place], fault_at: float) -> float | None:
    """From the fault until every partition has acknowledged a message that was begun after it; None for never."""
    first: dict[Place, float] = {}
    for event in events:
        if isinstance(event, Sent) and event.outcome == "ok" and (event.since or 0) >= fault_at:
            first[event.place] = min(event.at, first.get(event.place, event.at))
    moments = [first.get(place) for place in places]
    return None if None in moments else max(moment for moment in moments if moment is not None) - fault_at


def longest_pause(events: Iterable[Event], fault_at: float) -> float:
    """Seconds between two acknowledgements of one partition, of which the later came after the fault."""
    moments: dict[Place, list[float]] = defaultdict(list)
    for event in events:
        if isinstance(event, Sent) and event.outcome == "ok":
            moments[event.place].append(event.at)
    pauses = [
        after - before for times in moments.values() for before, after in pairwise(sorted(times)) if after >= fault_at
    ]
    return max(pauses, default=0.0)
