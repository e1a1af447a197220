"""The power goes at every write, sync, rename and unlink of a run: nothing acknowledged is lost, doubled or moved."""

import copy
import os
import random
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import pytest

from penstock.storage.files.memory import Crashed, Damage, MemoryFiles
from tests.system.bare_broker import FOLDER, TOPIC, BareBroker, IdempotentProducer, Sent

PARTITIONS: Final = 3
# Small enough for rolls, index entries, and retention by size and by time within a few hundred calls.
CONFIGS: Final = {
    "internal.segment.bytes": "700",
    "segment.ms": "8000",
    "index.interval.bytes": "150",
    "retention.bytes": "2000",
    "retention.ms": "20000",
}
OPERATIONS: Final = 70
FEWER_OPERATIONS: Final = 45
FIRST_SEED: Final = int(os.environ.get("SOAK_SEED", "0"))
SEEDS: Final = range(FIRST_SEED, FIRST_SEED + int(os.environ.get("SOAK_RUNS", "1")))
"""Of runs, each of which is cut off at every one of its calls."""
EVERYTHING: Final = [1 << 62] * PARTITIONS
NOTHING: Final = [0] * PARTITIONS


@dataclass(slots=True, frozen=True)
class Mode:
    """How much a producer waits for, and what `penstock.flush` is."""

    acks: int = -1
    flush: str = "ack"

    def __str__(self) -> str:
        return f"acks={self.acks}, flush={self.flush}"


FLUSHED: Final = Mode()
UNFLUSHED: Final = [Mode(acks=1), Mode(flush="os"), Mode(acks=1, flush="os")]


class Run:
    """A broker and its producers, and what was told to anybody before it ended."""

    def __init__(self, seed: int, files: MemoryFiles, mode: Mode) -> None:
        self.rng = random.Random(seed)
        self.configs = CONFIGS | {"penstock.flush": mode.flush}
        self.broker = BareBroker(files, partitions=PARTITIONS, configs=self.configs)
        self.producers = [IdempotentProducer(number, wait_for_all=mode.acks == -1) for number in (1, 2)]
        self.starts = [0] * PARTITIONS
        self.watermarks = [0] * PARTITIONS

    def go(self, operations: int) -> None:
        choices: dict[Callable[[], None], int] = {
            self.send: 50,
            self.broker.end_turn: 14,
            self.broker.continue_flush: 30,
            self.receive: 16,
            self.reconnect: 2,
            self.pass_time: 8,
            self.broker.sweep: 4,
            self.delete_records: 3,
            self.restart: 1,
            self.kill: 2,
        }
        try:
            self.broker.start()
            for action in self.rng.choices(list(choices), list(choices.values()), k=operations):
                action()
                self._note()
        finally:
            self._note()

    def _note(self) -> None:
        for index, partition in enumerate(self.broker.partitions):
            self.starts[index] = max(self.starts[index], partition.log.start_offset)
            self.watermarks[index] = max(self.watermarks[index], partition.high_watermark)

    # What happens

    def send(self) -> None:
        for _ in range(self.rng.choice([1, 1, 3])):
            self.rng.choice(self.producers).send(
                self.broker,
                self.rng.choice([0, 0, *range(PARTITIONS)]),
                records=self.rng.choice([1, 1, 2, 4]),
                size=self.rng.choice([0, 20, 120]),
            )

    def receive(self) -> None:
        self.rng.choice(self.producers).receive()

    def reconnect(self) -> None:
        self.rng.choice(self.producers).reconnect(self.broker)

    def pass_time(self) -> None:
        self.broker.now_ms += self.rng.choice([100, 1000, 9000])

    def delete_records(self) -> None:
        partition = self.rng.choice(self.broker.partitions)
        start, end = partition.log.start_offset, partition.high_watermark
        partition.delete_before(self.rng.choice([end, self.rng.randint(min(start, end), end)]))

    def restart(self) -> None:
        self.broker.stop()
        self.broker.start()
        self._reconnect_all()

    def kill(self) -> None:
        self.broker.files.kill_process()
        self.broker.start()
        self._reconnect_all()

    def _reconnect_all(self) -> None:
        for producer in self.producers:
            producer.reconnect(self.broker)

    # What comes after it

    def come_back(self, files: MemoryFiles) -> BareBroker:
        """The next process, on what the last one has left."""
        broker = BareBroker(
            files,
            partitions=PARTITIONS,
            configs=self.configs,
            leader_epoch=self.broker.leader_epoch,
            now_ms=self.broker.now_ms,
        )
        broker.start()
        return broker

    def check(
        self, broker: BareBroker, promised: list[int], producers: Iterable[IdempotentProducer] | None = None
    ) -> None:
        """All that was acknowledged below the promised offsets is there, and all that is there is in order."""
        acknowledged = self.acknowledged(producers)
        for index, partition in enumerate(broker.partitions):
            start, end = partition.log.start_offset, partition.log.end_offset
            assert self.starts[index] <= start, "the log start went back"
            assert start <= self.watermarks[index], "nobody asked the log start to go so far"
            found = broker.read(index)
            assert list(found) == list(range(start, end)), "offsets are not dense"
            check_order(list(found.values()), is_whole=start == 0)
            for sent in acknowledged:
                if sent.partition == index:
                    assert sent.base_offset is not None
                    for offset, value in enumerate(sent.values, sent.base_offset):
                        if start <= offset < promised[index]:
                            assert found.get(offset) == value, f"{value!r} is not at {index}@{offset}"

    def acknowledged(self, producers: Iterable[IdempotentProducer] | None = None) -> list[Sent]:
        return [sent for producer in producers or self.producers for sent in producer.acknowledged]

    def check_comeback(self, files: MemoryFiles, rng: random.Random) -> None:
        """The next start finds all that was promised, and clients go on."""
        broker = self.come_back(files)
        self.check(broker, EVERYTHING)
        producers = copy.deepcopy(self.producers)
        go_on(broker, producers)
        self.check(broker, EVERYTHING, producers)
        if rng.random() < 0.1:
            # What a crash brought back goes with the next snapshot.
            for partition in broker.partitions:
                partition.save_producers()
            broker.stop()
            check_no_litter(files)
            broker.start()
            assert broker.directory.was_clean
            self.check(broker, EVERYTHING, producers)

    def crash_while_coming_back(self, files: MemoryFiles, rng: random.Random) -> MemoryFiles:
        """The power comes back, and goes again before the broker is there."""
        undisturbed = files.copy()
        self.come_back(undisturbed)
        if not undisturbed.steps:
            return files
        files.crash_at(rng.randint(1, undisturbed.steps))
        with pytest.raises(Crashed):
            self.come_back(files)
        return files.after_crash(rng.choice(list(Damage)), rng)


def go_on(broker: BareBroker, producers: list[IdempotentProducer]) -> None:
    """Clients do not know what has happened: they send again what they have no answer to, and then the rest."""
    for producer in producers:
        producer.reconnect(broker)
    broker.settle()
    for producer in producers:
        producer.receive()
        for index in range(PARTITIONS):
            producer.send(broker, index, records=2, size=10)
    broker.settle()
    for producer in producers:
        producer.receive()
        assert not producer.unanswered


def check_order(values: list[bytes], *, is_whole: bool) -> None:
    """The numbers of each producer follow one another, from the first on if nothing was deleted."""
    last: dict[int, int] = {}
    for value in values:
        producer, number = map(int, value.split()[:2])
        expected = last.get(producer, -1 if is_whole else number - 1) + 1
        assert number == expected, f"producer {producer}: {number} where {expected} should be"
        last[producer] = number


def check_no_litter(files: MemoryFiles) -> None:
    """After a stop in order nothing is left that nobody needs, and that would pile up from crash to crash."""
    assert files.open_descriptors == 0
    for folder in files.list(FOLDER):
        # What a crash left before the first flush of a partition could tell whose it is: set aside, once.
        is_known = re.fullmatch(rf"lock|folder|recovery-points|clean-shutdown|{TOPIC}-\d(\.\d-stray)?", folder)
        assert is_known, folder
        names = files.list(f"{FOLDER}/{folder}") if re.fullmatch(rf"{TOPIC}-\d", folder) else []
        snapshots = {name for name in names if name.endswith(".snapshot")}
        assert len(snapshots) <= 2, names
        for name in set(names) - snapshots - {"identity", "leader-epochs", "log-start"}:
            stem, suffix = os.path.splitext(name)
            assert f"{stem}.log" in names, names
            assert suffix in (".log", ".index", ".timeindex"), names


def cut_off(seed: int, mode: Mode, operations: int) -> Iterator[tuple[Run, MemoryFiles, str]]:
    """One run, ended at each of its calls in turn; its disk, and where that was."""
    dry_run = MemoryFiles(seed=seed)
    Run(seed, dry_run, mode).go(operations)
    for step in range(1, dry_run.steps + 1):
        files = MemoryFiles(seed=seed)
        files.crash_at(step)
        run = Run(seed, files, mode)
        with pytest.raises(Crashed):
            run.go(operations)
        yield run, files, f"seed {seed}, {mode}, call {step} of {dry_run.steps}"


@contextmanager
def told(where: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise AssertionError(where) from error


@pytest.mark.parametrize("seed", SEEDS)
def test_everything_acknowledged_survives_a_power_loss_at_any_call(seed: int) -> None:
    for run, files, where in cut_off(seed, FLUSHED, OPERATIONS):
        for damage in Damage:
            rng = random.Random(f"{where} {damage}")
            with told(f"{where}, {damage}"):
                left = files.after_crash(damage, rng)
                if rng.random() < 0.2:
                    left = run.crash_while_coming_back(left, rng)
                run.check_comeback(left, rng)


@pytest.mark.parametrize("mode", [FLUSHED, *UNFLUSHED])
def test_everything_answered_survives_a_kill_at_any_call(mode: Mode) -> None:
    for run, files, where in cut_off(100, mode, FEWER_OPERATIONS):
        with told(where):
            # What a process has written is there, flushed or not.
            run.check_comeback(files.copy(), random.Random(where))


@pytest.mark.parametrize("mode", UNFLUSHED)
def test_a_power_loss_takes_unflushed_answers_from_the_end_alone(mode: Mode) -> None:
    lost = 0
    for run, files, where in cut_off(200, mode, FEWER_OPERATIONS):
        rng = random.Random(where)
        damage = rng.choice(list(Damage))
        with told(f"{where}, {damage}"):
            broker = run.come_back(files.after_crash(damage, rng))
            run.check(broker, run.watermarks if mode.flush == "ack" else NOTHING)
            ends = [partition.log.end_offset for partition in broker.partitions]
            lost += any((sent.base_offset or 0) >= ends[sent.partition] for sent in run.acknowledged())
            newcomers = [IdempotentProducer(number) for number in (3, 4)]
            go_on(broker, newcomers)
            run.check(broker, EVERYTHING, newcomers)
    assert lost, "no more is promised, or the test shows nothing"
