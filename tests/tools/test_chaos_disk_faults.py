"""Where bits are flipped, and what two faults at once do to each other's time."""

from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.broker.harness import batch
from tools.chaos import disk_faults, faults
from tools.chaos.scene import BROKERS, Course, Fault, Scene


def scene(seed: int) -> Scene:
    """Of a stage that has nothing but short sessions."""
    return Scene(cast(Any, SimpleNamespace(session_seconds=0.01)), cast(Any, None), 1, Random(seed))


def write_segments(folder: Path) -> list[Path]:
    """Two segments of three batches of two records; the last batch is cut off."""
    paths = []
    for first in (0, 6):
        data = b"".join(with_offset(bytes(batch(b"a" * 20, b"b" * 20)), first + 2 * number) for number in range(3))
        path = folder / f"{first:020}.log"
        path.write_bytes(data if first == 0 else data[:-1])
        paths.append(path)
    return paths


def with_offset(data: bytes, offset: int) -> bytes:
    return offset.to_bytes(8, "big") + data[8:]


@pytest.mark.parametrize(
    ("recovery_point", "segment", "number"), [(2, 0, 0), (5, 0, 1), (6, 0, 2), (9, 1, 0), (10, 1, 1), (99, 1, 1)]
)
def test_the_last_batch_below_the_recovery_point_is_the_last_that_ends_there(
    recovery_point: int, segment: int, number: int, tmp_path: Path
) -> None:
    paths = write_segments(tmp_path)
    size = len(batch(b"a" * 20, b"b" * 20))
    found = list(disk_faults._batches_below(paths, recovery_point))
    assert found[-1] == (paths[segment], number * size, size)


def test_below_a_recovery_point_of_nothing_is_no_batch(tmp_path: Path) -> None:
    assert list(disk_faults._batches_below(write_segments(tmp_path), 1)) == []


@pytest.mark.parametrize("seed", range(5))
def test_one_bit_is_flipped_and_told(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(bytes(10))
    flipping = scene(seed)
    disk_faults._flip(flipping, path, 7)
    assert [byte.bit_count() for byte in path.read_bytes()] == [0] * 7 + [1] + [0] * 2
    assert "byte 7" in flipping.told[0]


def test_faults_that_are_mixed_go_on_beside_each_other_to_their_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    course: list[str] = []

    def make(name: str) -> Fault:
        def run(scene: Scene) -> Course:
            course.append(f"{name} begins")
            yield 0.02
            course.append(f"{name} goes on")
            yield 0.02
            course.append(f"{name} is over")

        return Fault(name, BROKERS, run)

    monkeypatch.setattr(faults, "FAULTS", {"one": make("one"), "other": make("other")})
    monkeypatch.setattr(faults, "MIXED", {"a": ("one",), "b": ("other",)})
    monkeypatch.setattr(Scene, "draw", lambda *_: 1)
    mixed = scene(3)
    faults.perform(Fault("mixed", BROKERS, faults.mix), mixed)
    assert sorted(course) == sorted(
        f"{name} {what}" for name in ("one", "other") for what in ("begins", "goes on", "is over")
    )
    for name in ("one", "other"):
        mine = [step for step in course if step.startswith(f"{name} ")]
        assert mine == [f"{name} begins", f"{name} goes on", f"{name} is over"]
    assert sorted(course[:2]) == ["one begins", "other begins"], "the second begins while the first lasts"
    assert "on host 1" in mixed.told[0]
    assert not mixed.told[0].endswith("on host 1")
