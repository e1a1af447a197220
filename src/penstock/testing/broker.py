"""The production broker as an object: on real sockets, in this process, gone without a trace in the end."""

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Literal, Self

from penstock.broker.broker import Broker as ProductionBroker
from penstock.machines.decisions import Refused
from penstock.testing.clock import Clock
from penstock.testing.faults import Faults
from penstock.testing.stage import Stage

DEFAULTS: Final[Mapping[str, str]] = {
    # Groups begin at once: nobody waits three seconds for further members.
    "group.initial.rebalance.delay.ms": "0",
    # Fifty are for clusters with thousands of groups, and take a while to be made.
    "offsets.topic.num.partitions": "1",
}
"""What differs from a broker in production unless the test sets it."""


class Broker:
    """`with Broker() as broker:` or `async with Broker() as broker:`, and any Kafka client connects to
    `broker.bootstrap`.

    Settings are those of `penstock serve`, by their dotted names in a dict or as keywords:
    `Broker({"num.partitions": 3})`, `Broker(num_partitions=3)`. The data is in a temporary folder, or with
    `storage="memory"` in memory alone. Methods block until they are done, which takes milliseconds, also in tests that
    have an event loop: the broker has one of its own, in a thread.

    Example:
        from penstock.client import Producer

        async with Broker() as broker:
            broker.create_topic("orders", partitions=3, retention_ms=3_600_000)
            async with Producer(broker.bootstrap) as producer:
                await producer.send("orders", b"paid")
            broker.restart()
    """

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        storage: Literal["folder", "memory"] = "folder",
        **configs: object,
    ) -> None:
        if storage not in ("folder", "memory"):
            raise ValueError(f'storage is "folder" or "memory", not {storage!r}')
        self._settings = {**DEFAULTS, **_by_name(settings or {}), **_by_name(configs)}
        self._in_memory = storage == "memory"
        self._stage: Stage | None = None
        self.clock = Clock(self._leap)
        self.faults = Faults(self._open_stage)

    # Life

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        stage = self._set_up()
        try:
            await asyncio.wrap_future(stage.host.start(stage.start()))
        except BaseException:
            self._tear_down()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._stage is not None:
                await asyncio.wrap_future(self._stage.host.start(self._stage.stop()))
        finally:
            self._tear_down()

    def start(self) -> None:
        """Serve. After `stop` or `kill`: with the same data, at the same port."""
        is_first = self._stage is None
        stage = self._set_up()
        try:
            stage.host.run(stage.start())
        except BaseException:
            if is_first:
                self._tear_down()
            raise

    def stop(self) -> None:
        """Stop in order: what is under way is answered, and everything is kept for the next `start`."""
        stage = self._open_stage()
        stage.host.run(stage.stop())

    def kill(self) -> None:
        """Die as a process does by kill -9: nobody gets an answer, and what was not written yet is lost. The next
        `start` recovers what there is."""
        stage = self._open_stage()
        stage.host.run(stage.kill())

    def restart(self) -> None:
        """Stop in order, and start again."""
        self.stop()
        self.start()

    def reset(self) -> None:
        """Undo what a test did to it: faults are cleared, and unless it runs, in the present, it is started anew. The
        data stays."""
        stage = self._open_stage()
        self.faults.clear()
        if stage.broker is None or stage.broker.failure is not None or self.clock.lead_ms:
            stage.host.run(stage.stop())
            self.clock.set_lead(0)
            stage.host.run(stage.start())

    def close(self) -> None:
        """Stop, and leave nothing behind: no thread, no socket, no file."""
        try:
            if self._stage is not None:
                self._stage.host.run(self._stage.stop())
        finally:
            self._tear_down()

    @property
    def is_running(self) -> bool:
        return self._stage is not None and self._stage.broker is not None

    @property
    def failure(self) -> str | None:
        """Why the broker has given up, if it has: its disk failed. It serves again after `restart`."""
        return self._production().failure

    # Where it is, and what is in it

    @property
    def address(self) -> tuple[str, int]:
        """Host and port; they stay the same over restarts."""
        return self._production().address

    @property
    def bootstrap(self) -> str:
        """The address as clients want it, like `127.0.0.1:49153`."""
        host, port = self.address
        return f"{host}:{port}"

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, object] | None = None, **more: object
    ) -> str:
        """Create a topic, with configs by their dotted names in a dict or as keywords (`retention_ms=1000`); returns
        its name."""
        broker = self._production()
        values = {**_by_name(configs or {}), **_by_name(more)}

        async def create() -> None:
            topic_id = broker.draw_topic_id()
            await broker.cluster.change(
                lambda controller: controller.create_topic(
                    name, topic_id=topic_id, defaults=broker.topic_defaults, partitions=partitions, configs=values
                )
            )

        try:
            self._open_stage().host.run(create())
        except Refused as refused:
            raise ValueError(str(refused)) from None
        return name

    def _production(self) -> ProductionBroker:
        broker = self._open_stage().broker
        if broker is None:
            raise RuntimeError("the broker is not running: start it again")
        return broker

    # What it stands on

    def _set_up(self) -> Stage:
        if self._stage is None:
            self._stage = Stage(self._settings, self.clock, in_memory=self._in_memory)
        return self._stage

    def _open_stage(self) -> Stage:
        if self._stage is None:
            raise RuntimeError("the broker is not running: use it within `with Broker() as broker:`, or start it")
        return self._stage

    def _tear_down(self) -> None:
        stage, self._stage = self._stage, None
        if stage is not None:
            stage.close()

    def _leap(self, by_ms: int) -> None:
        stage = self._open_stage()
        stage.host.run(stage.leap(by_ms))


def _by_name(values: Mapping[str, object]) -> dict[str, str]:
    return {name.replace("_", "."): _text(value) for name, value in values.items()}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)
