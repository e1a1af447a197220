"""The production broker runs as an object: on real sockets, in this process, and gone without a trace in the end."""

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Literal, Self

from penstock.testing.clock import Clock
from penstock.testing.leaping import leap
from penstock.testing.node import Node
from penstock.testing.settings import DEFAULTS, by_name
from penstock.testing.stage import Ground, Stage


class Broker(Node):
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
        super().__init__()
        self._settings = {**DEFAULTS, **by_name(settings or {}), **by_name(configs)}
        self._in_memory = storage == "memory"
        self.clock = Clock(self._leap)

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
        """Stop, and leave nothing: no thread, no socket, no file."""
        try:
            if self._stage is not None:
                self._stage.host.run(self._stage.stop())
        finally:
            self._tear_down()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port; they stay the same over restarts."""
        return self._production().address

    # What it stands on

    def _set_up(self) -> Stage:
        if self._stage is None:
            self._ground = Ground(self.clock)
            self._stage = Stage(self._settings, self._ground, in_memory=self._in_memory)
        return self._stage

    def _tear_down(self) -> None:
        stage, self._stage = self._stage, None
        if stage is not None:
            self._ground.close()
            stage.close()

    def _leap(self, by_ms: int) -> None:
        stage = self._open_stage()
        stage.host.run(leap([] if stage.broker is None else [stage.broker], self.clock, by_ms))
