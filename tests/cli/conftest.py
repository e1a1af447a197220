"""A real broker in a thread, and the command line called in this process or in one of its own."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from click.testing import CliRunner, Result

from penstock.broker.broker import Broker
from penstock.broker.config.typed import BrokerConfig
from penstock.cli.main import penstock
from penstock.client.cluster import retries as retrying

# Whoever runs the tests in the background has Ctrl-C ignored, and so would these processes.
_START = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
PROGRAM = [sys.executable, "-c", f"{_START}; from penstock.cli.main import main; main()"]


@dataclass
class Running:
    """Where a broker listens, and where its data is."""

    address: str
    data: str


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    data = str(tmp_path_factory.mktemp("broker"))
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> Broker:
        settings = {
            "log.dirs": data,
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "group.initial.rebalance.delay.ms": "0",
        }
        made = Broker(BrokerConfig.parse(settings))
        await made.start()
        return made

    started = asyncio.run_coroutine_threadsafe(start(), loop).result(30)
    host, port = started.address
    yield Running(f"{host}:{port}", data)
    asyncio.run_coroutine_threadsafe(started.stop(), loop).result(30)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def cli(broker: Running, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """The command with the broker as its bootstrap. It has to succeed unless another exit code is expected."""
    monkeypatch.setattr(retrying, "BACKOFF_MS", 1)

    def call(*args: str, input: str | bytes | None = None, exit_code: int = 0) -> Result:
        result = CliRunner(env={"PENSTOCK_BOOTSTRAP": broker.address}).invoke(penstock, args, input=input)
        assert result.exit_code == exit_code, (result.stdout, result.stderr, result.exception)
        return result

    return call


@pytest.fixture
def topic(cli: Callable[..., Result], request: pytest.FixtureRequest) -> str:
    """A new topic of one partition, called like the test and its module."""
    name = f"{request.module.__name__.rpartition('.')[2]}-{request.node.name}".replace("[", "-").replace("]", "")[:200]
    cli("topic", "create", name, "--partitions", "1")
    return str(name)


@pytest.fixture
def program(broker: Running) -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    """Starts the command as a process of its own, which does not outlive the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*args: str, **settings: Any) -> "subprocess.Popen[bytes]":
        environment = {**os.environ, "PENSTOCK_BOOTSTRAP": broker.address}
        process = subprocess.Popen([*PROGRAM, *args], env=environment, **settings)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
