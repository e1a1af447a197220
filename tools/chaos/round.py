"""A round: clients write and read a topic of their own, one fault comes and goes, the cluster recovers, and the checker
looks at all that clients were told."""

import json
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from penstock.client.errors import ClientError
from tools.chaos.checker import Kind, check
from tools.chaos.clients.confluent import read_to_end
from tools.chaos.clients.journal import Journal
from tools.chaos.clients.work import BESIDE, Work, beside
from tools.chaos.crew import BESIDE_KIND, FEW_KINDS, KINDS, Crew
from tools.chaos.faults import FAULTS, perform
from tools.chaos.history import Event, Place, Read, Sent, load
from tools.chaos.recovery import Acknowledgements, longest_pause, seconds_until_back
from tools.chaos.scene import Scene
from tools.chaos.stage import Stage, StuckError, wait_for

PARTITIONS: Final = 4
FINAL: Final = "final"
PATIENCE_SECONDS: Final = 60.0
LEAD_SECONDS: Final = 2.0
"""Clients are at work for this time before the fault, and after the cluster has recovered."""
BRIEF_LEAD_SECONDS: Final = 0.5


@dataclass(slots=True)
class Result:
    """`problem` says what did not happen in time, `anomalies` what should never have happened."""

    name: str
    fault: str
    role: str = ""
    host: int = 0
    back_seconds: float | None = None
    pause_seconds: float | None = None
    round_seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    anomalies: list[str] = field(default_factory=list)
    problem: str | None = None
    drawn: list[str] = field(default_factory=list)
    """What a fault has done, where that is not always so."""
    beside: dict[str, list[int]] = field(default_factory=dict)
    """Of topics of which less is promised: how many messages were acknowledged, and how many of those are gone."""

    @property
    def is_good(self) -> bool:
        return not self.anomalies and self.problem is None


def run_round(stage: Stage, name: str, fault: str, folder: Path, *, is_brief: bool = False) -> Result:
    """The name is the seed of all that is drawn. Histories, logs of the brokers and the result are in the folder. A
    brief round has fewer clients, and is as short as can be."""
    folder.mkdir(parents=True)
    result = Result(name, fault)
    sizes = {log: log.stat().st_size for log in stage.logs()}
    topic = f"round-{name}"
    crew = Crew(folder, stage.bootstrap, topic, PARTITIONS, f"group-{name}", FEW_KINDS if is_brief else KINDS)
    began = time.monotonic()
    try:
        _perform(stage, crew, result, BRIEF_LEAD_SECONDS if is_brief else LEAD_SECONDS)
    except (StuckError, ClientError) as error:
        result.problem = f"{type(error).__name__}: {error}"
    finally:
        crew.kill()
        for log, size in sizes.items():
            _keep(log, size, folder)
    result.round_seconds = time.monotonic() - began
    (folder / "result.json").write_text(json.dumps(asdict(result), indent=1) + "\n")
    return result


def _perform(stage: Stage, crew: Crew, result: Result, lead_seconds: float) -> None:
    chance = Random(result.name)
    fault = FAULTS[result.fault]
    stage.create_topic(crew.topic, crew.partitions)
    topics_beside = BESIDE if BESIDE_KIND in crew.kinds else {}
    for end, (_, configs) in topics_beside.items():
        stage.create_topic(beside(crew.topic, end)[0], 1, configs)
    places = [(crew.topic, number) for number in range(crew.partitions)]
    crew.start_all()
    written = Acknowledgements(crew.folder)
    started = time.monotonic()
    wait_for(lambda: written.since(started, places), PATIENCE_SECONDS, "the first writes")
    wait_for(lambda: written.committed_since(started), PATIENCE_SECONDS, "the group's first commit")
    time.sleep(lead_seconds)

    role = chance.choice(fault.roles)
    scene = Scene(stage, crew, 0, chance, result.drawn)
    result.role = role
    result.host = scene.host = scene.draw(role)
    fault_at = time.monotonic()
    is_over = False
    try:
        perform(fault, scene)
        mended = time.monotonic()
        wait_for(lambda: written.since(mended, places), PATIENCE_SECONDS, "writes to every partition after the fault")
        wait_for(lambda: written.committed_since(mended), PATIENCE_SECONDS, "a commit of the group after the fault")
        stage.wait_until_whole(stage.whole_seconds)
        time.sleep(lead_seconds)
        crew.end()
        work = Work(FINAL, stage.bootstrap, crew.topic, crew.partitions, crew.group)
        with Journal(FINAL, crew.folder / f"{FINAL}.jsonl") as journal:
            if not read_to_end(work, places, journal, PATIENCE_SECONDS):
                raise StuckError(f"the last reader did not come to the end within {PATIENCE_SECONDS:.0f} s")
            for end in topics_beside:
                if not read_to_end(work, [beside(crew.topic, end)], journal, PATIENCE_SECONDS):
                    raise StuckError(f"the last reader did not come to the end of the topic beside, {end}")
        is_over = True
    finally:
        crew.kill()
        events = load(crew.histories())
        own = [event for event in events if event.place in places]
        _judge(own, places, fault_at, result, is_over=is_over)
        result.beside = {end: _gone(events, beside(crew.topic, end)) for end in topics_beside if is_over}


def _gone(events: list[Event], place: Place) -> list[int]:
    """Of a topic of which less is promised. What is at an offset of something that is gone is no anomaly, either."""
    own = [event for event in events if event.place == place]
    acknowledged = sum(isinstance(event, Sent) and event.outcome == "ok" for event in own)
    there = {
        value for event in own if isinstance(event, Read) and event.client == FINAL for value in event.values.values()
    }
    gone = [event for event in own if isinstance(event, Sent) and event.outcome == "ok" and event.value not in there]
    return [acknowledged, len(gone)]


def _judge(events: list[Event], places: list[Place], fault_at: float, result: Result, *, is_over: bool) -> None:
    result.back_seconds = seconds_until_back(events, places, fault_at)
    result.pause_seconds = longest_pause(events, fault_at)
    outcomes = Counter(event.outcome for event in events if isinstance(event, Sent))
    read = sum(len(event.values) for event in events if isinstance(event, Read))
    result.counts = {**{str(outcome): outcomes[outcome] for outcome in ("ok", "failed", "unknown")}, "read": read}
    found = check(events, final=FINAL)
    # Without a last reader that came to the end, much is unseen: that the round was stuck is known already.
    result.anomalies = [f"{one.kind}: {one.text}" for one in found if is_over or one.kind is not Kind.UNSEEN]


def _keep(log: Path, size: int, folder: Path) -> None:
    """What was logged during this round."""
    name = log.name if log.suffix else f"zookeeper-{log.parent.name}.log"
    with log.open("rb") as file:
        file.seek(size)
        (folder / name).write_bytes(file.read())
