"""Measures MB per CPU second of compaction, and the longest turn of the broker's loop with and without it."""

import asyncio
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random
from typing import Final

from benchmarks import programs
from benchmarks.batches import MB
from benchmarks.measure import Step
from benchmarks.processes import Server, free_port
from benchmarks.report import Row, Table, Target
from benchmarks.samples import Rounds
from benchmarks.scratch import scratch_folder
from benchmarks.systems import Penstock
from penstock.client.admin.topics import NewTopic, create_topics
from penstock.client.cluster.cluster import Cluster
from penstock.client.errors import unwrap
from penstock.protocol.batch import read_header
from penstock.protocol.compression import Codec
from penstock.protocol.records import NewRecord, build
from penstock.storage.compaction.clean import CleanedSegment, CleaningDone, clean
from penstock.storage.compaction.plan import plan
from penstock.storage.data_directory import DataDirectory
from penstock.storage.files import RealFiles
from penstock.storage.log.compaction_state import CompactionConfig
from penstock.storage.log.log import Log, LogConfig

ROUNDS: Final = 3
KEYS: Final = 1000
RECORDS_IN_BATCH: Final = 100
VALUE_BYTES: Final = 100

CLEANED_BYTES: Final = 16 * MB
SEGMENT_BYTES: Final = 4 * MB
FOR_EVER: Final = 1 << 40

SECONDS: Final = 3
BATCHES_PER_SECOND: Final = 400
TRAFFIC_SEGMENT_BYTES: Final = 1024 * 1024
_WITH, _WITHOUT = "with compaction", "without"
_LONGEST = Target("× without", 1.25, at_most=True)


@dataclass(slots=True, frozen=True)
class Shape:
    """What lies in a log: how many keys it is about, and how it is compressed."""

    name: str
    keys: int
    codec: Codec = Codec.NONE


SHAPES: Final = (
    Shape("few keys: nearly all goes", KEYS),
    Shape("as many keys as records: nothing goes", FOR_EVER),
    Shape("every second record goes", CLEANED_BYTES // (VALUE_BYTES + 25) // 2),
    Shape("few keys, lz4", KEYS, Codec.LZ4),
    Shape("few keys, zstd", KEYS, Codec.ZSTD),
)


@dataclass(slots=True, frozen=True)
class Cleaned:
    before_bytes: int
    after_bytes: int
    records: int
    cpu_seconds: float


@dataclass(slots=True, frozen=True)
class Traffic:
    """What the broker reports after a few seconds of updates."""

    longest_turn_seconds: float
    longest_reply_seconds: float
    rounds: float
    read_bytes: float
    cpu_seconds: float


def run(step: Step) -> list[Table]:
    with scratch_folder(warm_bytes=2 * CLEANED_BYTES) as folder:
        numbers = count()
        cleaned = {shape.name: Rounds([measure_cleaning(f"{folder}/{next(numbers)}", shape, step)]) for shape in SHAPES}
        traffic: dict[str, list[Traffic]] = {_WITH: [], _WITHOUT: []}
        for number in range(ROUNDS):
            for name, samples in traffic.items() if number % 2 == 0 else reversed(traffic.items()):
                step(f"traffic {name}, round {number + 1} of {ROUNDS}")
                own = Path(folder) / f"{name}-{number}".replace(" ", "-")
                own.mkdir()
                samples.append(measure_traffic(own, compacts=name == _WITH))
    rounds = {name: Rounds(samples) for name, samples in traffic.items()}
    return [cleaning_table(cleaned), traffic_table(rounds)]


# The cleaner alone


def measure_cleaning(folder: str, shape: Shape, step: Step) -> Cleaned:
    step(f"cleaning: {shape.name}")
    directory = DataDirectory(folder, RealFiles())
    config = LogConfig(segment_bytes=SEGMENT_BYTES, compaction=CompactionConfig(min_dirty_ratio=0.0))
    log = directory.log("orders", 0, config)
    for batch in _batches(shape, log):
        view = memoryview(batch)
        log.append([(read_header(view), view)], leader_epoch=0, now_ms=0)
    directory.flusher.flush()
    directory.flusher.save_recovery_points(0)
    job = plan(log, upper_bound=log.end_offset, now_ms=0, max_keys=1_000_000)
    assert job is not None, "there is something to compact"
    before = sum(source.size for group in job.groups for source in group)
    *segments, done = clean(RealFiles(), job)
    assert isinstance(done, CleaningDone), "nobody stopped it"
    cleaned = [one for one in segments if isinstance(one, CleanedSegment)]
    saved = sum(sum(source.size for source in one.sources) - one.size for one in cleaned)
    directory.close()
    return Cleaned(before, before - saved, done.records_read, done.cpu_seconds)


def _batches(shape: Shape, log: Log) -> Iterator[bytearray]:
    random, number = Random(7), 0
    while log.size < CLEANED_BYTES:
        keys = [
            number + place if shape.keys == FOR_EVER else random.randrange(shape.keys)
            for place in range(RECORDS_IN_BATCH)
        ]
        number += RECORDS_IN_BATCH
        # Half of a value is of the kind that can be compressed.
        values = [random.randbytes(VALUE_BYTES // 2) + bytes(VALUE_BYTES // 2) for _ in keys]
        yield build(
            [NewRecord(value, key=b"key-%012d" % key, timestamp=0) for key, value in zip(keys, values, strict=True)],
            codec=shape.codec,
        )


def cleaning_table(cleaned: dict[str, Rounds[Cleaned]]) -> Table:
    rows = []
    for name, rounds in cleaned.items():
        values: dict[str, str | float] = {
            "log": name,
            "MB before": rounds.median(lambda one: one.before_bytes / MB),
            "MB after": rounds.median(lambda one: one.after_bytes / MB),
            "MB per CPU second": rounds.median(lambda one: one.before_bytes / MB / one.cpu_seconds),
            "CPU µs/record": rounds.median(lambda one: one.cpu_seconds / one.records * 1e6),
        }
        rows.append(Row(values))
    how = (
        f"One round over segments of {SEGMENT_BYTES // MB} MB, in batches of {RECORDS_IN_BATCH} records of "
        f"{VALUE_BYTES} bytes, as the helper process does it; MB as they lie on the disk."
    )
    return Table("Compaction", how, rows, {name: rounds.as_json() for name, rounds in cleaned.items()})


# Beside traffic


def measure_traffic(folder: Path, *, compacts: bool) -> Traffic:
    metrics = free_port()
    options = ("-X", f"log.cleaner.enable={str(compacts).lower()}", "-X", "log.cleaner.backoff.ms=20")
    system = Penstock(*options, "-X", f"penstock.metrics.listen=127.0.0.1:{metrics}")
    # On any core: the helper would have to share a single one with the broker, which it is there to leave alone.
    with system.start(folder, cores=()) as server:
        asyncio.run(_make_topic(server, "updates"))
        command = [sys.executable, "-m", "benchmarks.compaction_client", str(server.port), "updates"]
        command += [str(KEYS), str(RECORDS_IN_BATCH), str(VALUE_BYTES), str(BATCHES_PER_SECOND), str(SECONDS)]
        result = programs.run(command)
        told = _scrape(metrics)
    return Traffic(
        longest_turn_seconds=told["penstock_event_loop_lag_recent_max_seconds"],
        longest_reply_seconds=result["longest_seconds"],
        rounds=told["penstock_cleaner_rounds_total"],
        read_bytes=told["penstock_cleaner_read_bytes_total"],
        cpu_seconds=told["penstock_cleaner_cpu_seconds_total"],
    )


async def _make_topic(server: Server, name: str) -> None:
    configs = {
        "cleanup.policy": "compact",
        "segment.bytes": str(TRAFFIC_SEGMENT_BYTES),
        "min.cleanable.dirty.ratio": "0.01",
    }
    async with Cluster(f"127.0.0.1:{server.port}", client_id="penstock-bench") as cluster:
        topic = NewTopic(name=name, partitions=1, configs=configs)
        unwrap(await create_topics(cluster, [topic]))


def _scrape(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as page:
        lines = [line.split() for line in str(page.read(), "utf-8").splitlines() if line[0] != "#"]
    return {line[0]: float(line[-1]) for line in lines}


def traffic_table(results: dict[str, Rounds[Traffic]]) -> Table:
    rows = []
    without = results[_WITHOUT]
    for name, rounds in results.items():
        values: dict[str, str | float] = {
            "by": name,
            "longest turn ms": rounds.median(lambda one: one.longest_turn_seconds * 1e3),
            "spread": rounds.spread(lambda one: one.longest_turn_seconds * 1e3),
            "× without": rounds.ratio(without, lambda one: one.longest_turn_seconds),
            "longest reply ms": rounds.median(lambda one: one.longest_reply_seconds * 1e3),
            "rounds": rounds.median(lambda one: one.rounds),
            "MB per CPU second": rounds.median(lambda one: one.read_bytes / MB / max(one.cpu_seconds, 1e-9)),
        }
        rows.append(Row(values, (_LONGEST,) if name == _WITH else ()))
    rate = BATCHES_PER_SECOND * RECORDS_IN_BATCH
    how = (
        f"{rate:,} updates of {KEYS:,} keys a second for {SECONDS} s, acks=all, into segments of 1 MiB that are "
        "compacted as soon as one is closed; a turn is seen by a timer that is late. Broker, helper and load run on "
        "any core."
    )
    return Table("Updates beside compaction", how, rows, {name: rounds.as_json() for name, rounds in results.items()})
