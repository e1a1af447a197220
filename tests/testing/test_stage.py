"""What brokers of a test stand on, by itself."""

import socket
import sys
from pathlib import Path

import pytest

from penstock.testing.clock import Clock
from penstock.testing.stage import HOST, Ground, Stage


def stage_of(*, in_memory: bool = False, **settings: str) -> Stage:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return Stage(named, Ground(Clock(print)), in_memory=in_memory)


def close(stage: Stage) -> None:
    stage._ground.close()
    stage.close()


def test_the_broker_listens_on_the_port_that_was_kept_for_it() -> None:
    stage = stage_of()
    try:
        addresses = []
        for _ in range(3):
            stage.host.run(stage.start())
            assert stage.broker is not None
            addresses.append(stage.broker.address)
            socket.create_connection(stage.broker.address).close()
            stage.host.run(stage.stop())
        assert len(set(addresses)) == 1
        assert addresses[0][0] == HOST
    finally:
        close(stage)


def test_a_port_of_the_users_own_is_used_if_it_is_of_this_machine() -> None:
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    stage = stage_of(listeners=f"PLAINTEXT://localhost:{port}")
    try:
        stage.host.run(stage.start())
        assert stage.broker is not None
        assert stage.broker.address == ("localhost", port)
    finally:
        stage.host.run(stage.stop())
        close(stage)


def test_the_folder_is_there_until_the_end() -> None:
    stage = stage_of()
    stage.host.run(stage.start())
    assert stage.broker is not None
    folder = Path(stage.broker.data_path)
    stage.host.run(stage.stop())
    assert (folder / "logs").is_dir()
    close(stage)
    assert not folder.exists()


def test_in_memory_there_is_no_folder() -> None:
    stage = stage_of(in_memory=True)
    stage.host.run(stage.start())
    assert stage.broker is not None
    assert not Path(stage.broker.data_path).exists()
    stage.host.run(stage.stop())
    close(stage)


def test_a_disk_without_a_reserve_is_full_when_there_is_nothing_left() -> None:
    stage = stage_of(penstock_disk_reserve_bytes="0")
    stage.host.run(stage.start())
    stage.host.run(stage.fill_disk(None))
    assert stage.disk.room == 0
    stage.host.run(stage.free_disk())
    assert stage.disk.room is None
    stage.host.run(stage.stop())
    close(stage)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the port cannot be kept")
def test_two_stages_never_get_the_same_port() -> None:
    stages = [stage_of(in_memory=True) for _ in range(20)]
    ports = {stage._settings["listeners"] for stage in stages}
    for stage in stages:
        close(stage)
    assert len(ports) == 20
