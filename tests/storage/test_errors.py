"""Errors say where and what, and what to do about it."""

import inspect

from penstock.storage import errors
from penstock.storage.errors import CorruptLogError, OffsetOutOfRangeError, StorageError


def test_all_errors_of_storage_can_be_caught_as_one() -> None:
    classes = [value for _, value in inspect.getmembers(errors, inspect.isclass)]
    assert len(classes) > 5
    assert all(issubclass(value, StorageError) for value in classes)
    assert not issubclass(StorageError, OSError)


def test_corruption_names_the_file_and_the_byte_and_the_way_out() -> None:
    error = CorruptLogError("/data/orders-0/00000000000000000000.log", "there is no batch here", position=77)
    assert str(error).startswith("/data/orders-0/00000000000000000000.log, byte 77: there is no batch here.")
    assert "restore this partition from a replica or a backup" in str(error)
    assert (error.path[-4:], error.position, error.reason) == (".log", 77, "there is no batch here")


def test_an_offset_out_of_range_tells_the_range() -> None:
    error = OffsetOutOfRangeError(12, 3, 10)
    assert str(error) == "offset 12 is not in the log, which goes from 3 to 10"
    assert (error.offset, error.start, error.end) == (12, 3, 10)
