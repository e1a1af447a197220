"""Facts that the operating system tells of this process."""

import os
import resource
import socket
import sys

import pytest

from penstock.broker.metrics import process

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")


@linux
def test_memory_grows_with_what_is_used() -> None:
    before = process.resident_bytes()
    assert before is not None
    assert before > 1024 * 1024
    used = bytearray(os.urandom(1)) * (64 * 1024 * 1024)
    after = process.resident_bytes()
    assert after is not None
    assert after - before > 32 * 1024 * 1024
    del used


@linux
def test_descriptors_are_counted() -> None:
    before = process.open_descriptors()
    assert before is not None
    sockets = [socket.socket() for _ in range(10)]
    assert process.open_descriptors() == before + 10
    for one in sockets:
        one.close()
    assert process.open_descriptors() == before


@linux
def test_descriptors_are_counted_where_the_folder_does_not_tell_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = len(os.listdir("/proc/self/fd")) - 1
    monkeypatch.setattr(os, "stat", lambda path: os.stat_result((0,) * 10))
    assert process.open_descriptors() == expected


def test_what_the_system_does_not_tell_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(os, "stat", missing)
    monkeypatch.setattr("builtins.open", missing)
    assert process.open_descriptors() is None
    assert process.resident_bytes() is None


def test_the_limit_on_descriptors_is_the_soft_one() -> None:
    assert process.max_descriptors() == resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def test_no_limit_is_infinite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert process.max_descriptors() == float("inf")


def test_processor_time_only_grows() -> None:
    before = process.cpu_seconds()
    sum(range(100_000))
    assert process.cpu_seconds() > before > 0
