"""The report of a run says for each fault how long writes were away, and names every anomaly with its round."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from tools.chaos.clients.work import BESIDE
from tools.chaos.faults import FAULTS
from tools.chaos.progress import TURN_ROUNDS
from tools.chaos.round import Result
from tools.chaos.systems import PENSTOCK, SYSTEMS
from tools.chaos.systems.kafka import HEAP_MB
from tools.chaos.systems.warming import AT_MOST_SECONDS, MESSAGES

SHOWN = 5
"""Anomalies of one round that are printed: one cause has many."""
HEAD = (
    "| fault | what | rounds | writes back, median s | worst | pause, s | worst | anomalies | stuck | acks=1 | os |",
    "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
)


MEANING = (
    "Writes are back when every partition has acknowledged a message that was sent after the fault began (acks=all). "
    "The pause is the longest time in which a partition acknowledged nothing, from the fault to the end of the round, "
    "its median and its worst. The last two columns are no anomalies: how many acknowledged messages are gone of two "
    "other topics, of which less is promised, one written with acks=1 and one with penstock.flush=os"
)


def summary(results: Iterable[Result]) -> str:
    all_results = list(results)
    rows = [_row(fault, [one for one in all_results if one.fault == fault]) for fault in FAULTS]
    lines = ["# chaos", "", course(all_results), "", f"{MEANING}.", "", *HEAD, *(row for row in rows if row)]
    bad = [f"- {line}" for one in all_results for line in complaints(one)]
    return "\n".join([*lines, *(["", *bad] if bad else [])]) + "\n"


def course(results: Sequence[Result]) -> str:
    """What was done and found in all rounds together."""
    return (
        f"{len(results)} rounds with three brokers and three ZooKeepers; sessions last "
        f"{SYSTEMS[PENSTOCK].session_seconds:g} s. {_counts(results)}"
    )


def comparison(results: Mapping[str, Iterable[Result]], kafka: str) -> str:
    """Of several systems; `kafka` is Kafka's version."""
    by_system = {name: list(some) for name, some in results.items()}
    course = (
        f"Penstock as in [chaos](chaos.md), and Apache Kafka {kafka}: three nodes that are broker and controller at "
        f"once (KRaft), each with a heap of {HEAP_MB} MB, in the same network namespaces. Both have three replicas of "
        "everything and min.insync.replicas=2; Kafka's other settings are its defaults, but for the session timeout "
        "(broker.session.timeout.ms, 9 s by default) where the table says so. The systems took turns of up to "
        f"{TURN_ROUNDS} rounds of each fault on the same machine, with the same clients, checker and measure; a round "
        "draws the same role in each system, and its times are drawn relative to the session. Kafka's nodes are loaded "
        f"before a round, if one of them has started since the last: with {MESSAGES:,} requests, or for "
        f"{AT_MOST_SECONDS:.0f} s if that takes longer."
    )
    meaning = (
        f"{MEANING}. Kafka never waits for the disk, and does not know that setting: its topic in the last column is "
        "one like those of the rounds."
    )
    counts = [f"- {_named(name)}: {len(some)} rounds. {_counts(some)}" for name, some in by_system.items()]
    rows = [
        _row(fault, [one for one in some if one.fault == fault], _named(name))
        for fault in FAULTS
        for name, some in by_system.items()
    ]
    head = ("| system " + HEAD[0], "| --- " + HEAD[1])
    lines = ["# chaos-kafka", "", course, "", meaning, "", *counts, "", *head, *(row for row in rows if row)]
    bad = [f"- {_named(name)}: {line}" for name, some in by_system.items() for one in some for line in complaints(one)]
    return "\n".join([*lines, *(["", *bad] if bad else [])]) + "\n"


def _named(system: str) -> str:
    return f"{SYSTEMS[system].title}, session {SYSTEMS[system].session_seconds:g} s"


def _counts(results: Sequence[Result]) -> str:
    counts = {name: sum(one.counts.get(name, 0) for one in results) for name in ("ok", "failed", "unknown", "read")}
    return (
        f"{counts['ok']:,} messages acknowledged, {counts['failed']:,} refused, {counts['unknown']:,} of an unknown "
        f"outcome, {counts['read']:,} read. {sum(len(one.anomalies) for one in results)} anomalies; "
        f"{sum(one.problem is not None for one in results)} rounds were stuck."
    )


def complaints(result: Result) -> list[str]:
    """What is wrong with a round, if anything."""
    where = f"round {result.name} ({', '.join([f'{result.role} on host {result.host}', *result.drawn])})"
    stuck = [] if result.problem is None else [f"{where}: {result.problem}"]
    more = len(result.anomalies) - SHOWN
    rest = [f"{where}: {more} more, in its result.json"] if more > 0 else []
    return [*stuck, *(f"{where}: {anomaly}" for anomaly in result.anomalies[:SHOWN]), *rest]


def _row(fault: str, results: list[Result], system: str | None = None) -> str:
    if not results:
        return ""
    anomalies = sum(len(one.anomalies) for one in results)
    stuck = sum(one.problem is not None for one in results)
    cells = [fault, FAULTS[fault].what, str(len(results)), *times(results)]
    first = [] if system is None else [system]
    lost = [gone(results, topic) for topic in BESIDE]
    return f"| {' | '.join([*first, *cells, str(anomalies), str(stuck), *lost])} |"


def times(results: Iterable[Result]) -> tuple[str, str, str, str]:
    """Median and worst, in seconds: until writes are back, and of the pause."""
    rounds = list(results)
    back = [one.back_seconds for one in rounds if one.back_seconds is not None]
    pauses = [one.pause_seconds for one in rounds if one.pause_seconds is not None]
    return (*_middle_and_worst(back), *_middle_and_worst(pauses))


def gone(results: Iterable[Result], topic: str) -> str:
    """How many messages of a topic beside the rounds' own are gone, of those that were acknowledged."""
    counts = [one.beside[topic] for one in results if topic in one.beside]
    return f"{sum(lost for _, lost in counts):,} of {sum(told for told, _ in counts):,}" if counts else "–"


def _middle_and_worst(seconds: list[float]) -> tuple[str, str]:
    return (f"{median(seconds):.1f}", f"{max(seconds):.1f}") if seconds else ("–", "–")
