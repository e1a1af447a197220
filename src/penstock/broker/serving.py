"""Serving runs a broker that owns its process: it sets signals, garbage collector and limits of the process."""

import asyncio
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.config.endpoints import open_listener_problem
from penstock.broker.config.typed import BrokerConfig
from penstock.broker.engine import EngineLoop
from penstock.metadata.store import StoreError
from penstock.storage.errors import StorageError

log = logging.getLogger(__name__)

# A thread that computes gives the event loop back its turn after half a millisecond.
SWITCH_SECONDS: Final = 0.0005
GC_THRESHOLDS: Final = (50_000, 50, 1000)
# Connections and segments take a descriptor each; a shell allows its programs a thousand or so.
OPEN_FILES: Final = 1_000_000
FEW_OPEN_FILES: Final = 4096


class ServeError(Exception):
    """The broker cannot start; the message is for its operator."""


def run(config: BrokerConfig, *, started: Callable[[Broker], None], insecure: bool) -> None:
    """Serve until SIGTERM or SIGINT, then stop in order. A second signal ends the process at once. A disk that fails
    ends it too, with a ServeError: the broker has no other disk."""
    refuse_open_listeners(config, insecure=insecure)
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(*GC_THRESHOLDS)
    allow_open_files()
    try:
        with asyncio.Runner(loop_factory=EngineLoop) as runner:
            # A supervisor and a service manager may both ask it to stop; what is in a hurry the supervisor kills.
            is_supervised = config["penstock.metadata.socket"] is not None
            runner.run(_serve(Broker(config), started, may_hurry=not is_supervised))
    except (StorageError, StoreError) as error:
        raise ServeError(str(error)) from error
    except OSError as error:
        raise ServeError(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}") from error


async def _serve(broker: Broker, started: Callable[[Broker], None], *, may_hurry: bool) -> None:
    asked_to_stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop(number: signal.Signals) -> None:
        if asked_to_stop.is_set():
            if may_hurry:
                os._exit(128 + number)
            return
        log.info("stopping", extra={"signal": number.name})
        asked_to_stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    await broker.start()
    # Objects that live as long as the process need not be looked at by every collection.
    gc.collect()
    gc.freeze()
    started(broker)
    broker_failed = asyncio.create_task(broker.failed.wait())
    broker_failed.add_done_callback(lambda _: asked_to_stop.set())
    try:
        await asked_to_stop.wait()
    finally:
        broker_failed.cancel()
        await broker.stop()
        log.info("stopped", extra={"node_id": broker.node_id})
    if broker.failure is not None:
        raise ServeError(broker.failure)


def allow_open_files() -> None:
    """Raise the limit on open files as far as the operating system allows without an administrator."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (OSError, ValueError) as error:
            # macOS has a limit below the one that it reports.
            log.debug("the limit on open files stays", extra={"limit": soft, "error": str(error)})
    if soft != resource.RLIM_INFINITY and soft < FEW_OPEN_FILES:
        log.warning("few open files are allowed: raise the limit (ulimit -n)", extra={"limit": soft})


def refuse_open_listeners(config: BrokerConfig, *, insecure: bool) -> None:
    """Refuse to open a broker without authentication to the world by mistake."""
    problem = open_listener_problem((*config.listeners, *filter(None, [config.metrics_listener])))
    if problem is not None and not insecure:
        raise ServeError(problem)
