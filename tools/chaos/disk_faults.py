"""What happens to disks: they are full, fail to sync, are slow, change a bit, lose their power."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from struct import Struct
from typing import Final

from penstock.storage.files import RealFiles
from penstock.storage.recovery_points import RecoveryPoints
from tools.chaos.scene import Course, Scene
from tools.chaos.stage import POLL_SECONDS, StuckError

NOTICE_SECONDS: Final = 180.0
AFTER_FAILED_SYNC: Final = 1
"""The exit code of a broker whose disk has failed."""
# Of a batch: its first offset and its length, and how far its last offset is from the first.
_HEAD: Final = Struct(">qi")
_LAST_DELTA: Final = Struct(">i")
_LAST_DELTA_AT: Final = 23
_BATCH_BODY_AT: Final = 61


def wipe(scene: Scene) -> Course:
    broker = scene.broker
    broker.kill()
    broker.wipe()
    yield scene.chance.uniform(0, scene.session_seconds + 3)
    broker.start()


def fill(scene: Scene) -> Course:
    shim, before = scene.shim, scene.shim.get("refused_writes")
    shim.set("is_full", 1)
    yield scene.chance.uniform(4, 9)
    shim.heal()
    scene.told.append(f"{shim.get('refused_writes') - before} writes found no room")


def fail_sync(scene: Scene) -> Course:
    """The broker has to end by itself: nothing that it could say of its disk would be certain."""
    broker, shim = scene.broker, scene.shim
    shim.set("failing_syncs", 1)
    yield from _until(lambda: not broker.is_running, f"the end of broker {broker.number}, whose disk has failed")
    assert broker.process is not None
    if broker.process.returncode != AFTER_FAILED_SYNC:
        raise StuckError(f"broker {broker.number}, whose disk has failed, ended with {broker.process.returncode}")
    yield scene.chance.uniform(0, scene.session_seconds + 3)
    shim.heal()
    broker.start()


def slow_syncs(scene: Scene) -> Course:
    shim, before = scene.shim, scene.shim.get("delayed_syncs")
    delay_ms = scene.chance.randint(200, 800)
    shim.set("sync_delay_ms", delay_ms)
    yield scene.chance.uniform(5, 10)
    shim.heal()
    scene.told.append(f"{shim.get('delayed_syncs') - before} syncs took {delay_ms} ms longer")


def flip_bits(scene: Scene) -> Course:
    """In one partition's log below its recovery point, where the next start reads it, and in a closed segment of
    another, where the scrubber finds it. Both have to be set aside, and copied again."""
    broker = scene.broker
    broker.kill()
    logs = broker.data / "logs"
    points = RecoveryPoints(RealFiles(), str(logs))
    numbers = scene.chance.sample(range(scene.crew.partitions), scene.crew.partitions)
    damaged: Path | None = None
    closed: Path | None = None
    for number in numbers:
        log = logs / f"{scene.crew.topic}-{number}"
        segments = sorted(log.glob("*.log"))
        last_flushed = list(_batches_below(segments, points.get(log.name)))[-1:]
        if damaged is None and last_flushed:
            [(segment, position, size)] = last_flushed
            _flip(scene, segment, position + scene.chance.randrange(_BATCH_BODY_AT, size))
            damaged = log
        elif closed is None and len(segments) > 1:
            closed = scene.chance.choice(segments[:-1])
            _flip(scene, closed, scene.chance.randrange(closed.stat().st_size))
    if damaged is None or closed is None:
        raise StuckError("no log has anything below its recovery point, or none has a closed segment")
    yield scene.chance.uniform(0, scene.session_seconds + 3)
    broker.start()
    for name in (damaged.name, closed.parent.name):
        yield from _until(partial(_is_aside, logs, name), f"broker {broker.number} to set {name} aside")


def _is_aside(logs: Path, name: str) -> bool:
    return any(logs.glob(f"{name}.*-stray"))


def _until(condition: Callable[[], bool], what: str) -> Course:
    """Other faults of the round go on meanwhile."""
    deadline = time.monotonic() + NOTICE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise StuckError(f"{what}: not within {NOTICE_SECONDS:.0f} s")
        yield POLL_SECONDS


def _batches_below(segments: list[Path], recovery_point: int) -> Iterator[tuple[Path, int, int]]:
    """Segment, position and size of each batch that ends below the recovery point."""
    for segment in segments:
        data, position = segment.read_bytes(), 0
        while position + _BATCH_BODY_AT <= len(data):
            base, length = _HEAD.unpack_from(data, position)
            (delta,) = _LAST_DELTA.unpack_from(data, position + _LAST_DELTA_AT)
            size = _HEAD.size + length
            if base + delta + 1 > recovery_point or position + size > len(data):
                return
            yield segment, position, size
            position += size


def _flip(scene: Scene, path: Path, position: int) -> None:
    bit = scene.chance.randrange(8)
    with path.open("r+b") as file:
        file.seek(position)
        changed = file.read(1)[0] ^ 1 << bit
        file.seek(position)
        file.write(bytes([changed]))
    scene.told.append(f"bit {bit} of byte {position} of {path.parent.name}/{path.name} is flipped")


def lose_power(scene: Scene) -> Course:
    """Of all brokers at once: what no sync had brought to their disks is gone."""
    brokers = list(scene.stage.brokers.values())
    disks = [broker.disk for broker in brokers if broker.disk is not None]
    assert len(disks) == len(brokers), "this stage has no disks that can lose their power"
    for disk in disks:
        disk.shut_down()
    for broker in brokers:
        broker.kill()
    yield scene.chance.uniform(0, 3)
    for disk in disks:
        disk.come_back()
    for broker in scene.chance.sample(brokers, len(brokers)):
        broker.start()
