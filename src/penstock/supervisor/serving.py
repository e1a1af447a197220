"""Serving runs the supervisor as the process that it is: it keeps the metadata of its brokers, and obeys signals."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Sequence
from typing import Final

from penstock.machines.stranding import stranding_problem
from penstock.metadata.reading import read_image
from penstock.metadata.remote.server import StoreServer
from penstock.metadata.sqlite import SqliteStore
from penstock.metadata.store import MetadataStore, StoreError
from penstock.supervisor.left_processes import LeftProcess, end_left, read_left
from penstock.supervisor.plan import BrokerPlan
from penstock.supervisor.readiness import Readiness
from penstock.supervisor.supervisor import Supervisor

log = logging.getLogger(__name__)

METADATA_FILE: Final = "metadata.sqlite"
SOCKET_FILE: Final = "metadata.socket"
# What the operating system takes as the path of a socket, less what the server adds while it makes one.
MAX_SOCKET_PATH: Final = 100
RETURN_SECONDS: Final = 3.0
"""How long brokers that were left may take to find their metadata again; they look for it each second."""
_LOOK_SECONDS: Final = 0.02


class SupervisorError(Exception):
    """The brokers cannot be run; the message is for their operator."""


def run(
    plans: Sequence[BrokerPlan],
    command: Callable[[BrokerPlan, str], Sequence[str]],
    started: Callable[[list[Readiness], list[int]], None],
) -> None:
    """Run brokers until SIGTERM, SIGINT or SIGHUP, then stop them in order. A second signal ends them at once.
    `command` starts a broker that finds its metadata at a socket."""
    try:
        asyncio.run(_serve(plans, command, started))
    except StoreError as error:
        raise SupervisorError(str(error)) from error
    except OSError as error:
        raise SupervisorError(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}") from error


async def _serve(
    plans: Sequence[BrokerPlan],
    command: Callable[[BrokerPlan, str], Sequence[str]],
    started: Callable[[list[Readiness], list[int]], None],
) -> None:
    data = os.path.abspath(plans[0].data_path)
    socket = os.path.join(data, SOCKET_FILE)
    if len(os.fsencode(socket)) > MAX_SOCKET_PATH:
        raise SupervisorError(
            f"{data} is too long a path for the socket that brokers share ({MAX_SOCKET_PATH} bytes with its name); "
            "choose a shorter one with --data-dir, perhaps a link to this folder"
        )
    make_folder(data)
    store = SqliteStore(os.path.join(data, METADATA_FILE))
    await store.open()
    try:
        await refuse_too_few(store, len(plans))
        server = StoreServer(store, socket)
        await server.open()
        try:
            commands = {plan.node_id: command(plan, socket) for plan in plans}
            await _supervise(Supervisor(commands, data, started), server, data)
        finally:
            await server.close()
    finally:
        await store.close()


async def _supervise(supervisor: Supervisor, server: StoreServer, folder: str) -> None:
    loop = asyncio.get_running_loop()
    asked_to_stop = asyncio.Event()

    def stop(number: signal.Signals) -> None:
        if asked_to_stop.is_set():
            supervisor.kill()
            os._exit(128 + number)
        log.info("stopping all brokers", extra={"signal": number.name})
        asked_to_stop.set()

    # SIGHUP: the terminal is closed, and the brokers have none of their own.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stop, number)
    left = read_left(folder)
    if left:
        log.warning("ending brokers that an earlier supervisor has left", extra={"pids": [each.pid for each in left]})
        await end_after_return(left, server)
    asked = asyncio.create_task(asked_to_stop.wait())
    failed = asyncio.create_task(supervisor.failed())
    supervisor.start()
    try:
        await asyncio.wait([asked, failed], return_when=asyncio.FIRST_COMPLETED)
    finally:
        asked_to_stop.set()
        await supervisor.stop(last=server.controller)
        asked.cancel()
    if failed.done():
        raise SupervisorError(failed.result())
    failed.cancel()
    log.info("all brokers have stopped")


async def end_after_return(left: Sequence[LeftProcess], server: StoreServer) -> None:
    """End brokers that have served without metadata. Once they have found it again they stop as a cluster does, each
    handing over what it leads to the controller, which is the last."""
    numbers = {each.node_id for each in left}
    try:
        async with asyncio.timeout(RETURN_SECONDS):
            while not numbers <= server.members or server.controller not in numbers:
                await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError:
        # One that hangs is ended as well.
        pass
    await end_left(sorted(left, key=lambda each: each.node_id == server.controller))


def make_folder(path: str) -> None:
    """Make the data folder, for its owner alone, if it is not there."""
    if not os.path.isdir(path):
        os.makedirs(path, 0o700)
        parent = os.open(os.path.dirname(path), os.O_RDONLY)
        try:
            os.fsync(parent)
        finally:
            os.close(parent)


async def refuse_too_few(store: MetadataStore, count: int) -> None:
    problem = stranding_problem(await read_image(store), set(range(count)))
    if problem is not None:
        raise SupervisorError(
            f"{problem} with --processes {count}: start as many as there were, or delete those topics"
        )
