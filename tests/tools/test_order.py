"""The order in which workers are given the tests."""

from pathlib import Path

import pytest

from tests.order import LONG, places

ROOT = Path(__file__).parent.parent.parent
SHORT = [f"tests/protocol/test_records.py::test_{number}" for number in range(20)]
NAMES = [
    "tests/clients/test_groups.py::test_one",
    *SHORT,
    "tests/spark/sink/test_sink.py::test_two",
    "tests/system/test_crashes.py::test_three",
    "tests/system/test_spark_cluster.py::test_four",
    "tests/tools/test_demo.py::test_five",
]


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 30])
def test_every_test_has_one_place(workers: int) -> None:
    assert sorted(places(NAMES, workers)) == list(range(len(NAMES)))


def test_each_worker_begins_with_its_share_of_what_takes_long_and_all_are_given_as_many() -> None:
    one, *_, two, three, four, five = NAMES
    order = [NAMES[place] for place in places(NAMES, workers=3)]
    assert order[:8] == [one, *SHORT[:7]]
    assert order[8:16] == [two, four, five, *SHORT[7:12]]
    assert order[16:] == [three, *SHORT[12:]]


def test_every_share_names_tests_that_there_are() -> None:
    assert all((ROOT / name).exists() for files in LONG for name in files)
