"""A broker as an object: it starts and stops, many times in a process, and installs nothing outside itself."""

import asyncio
import logging
import os
import secrets
import socket
import uuid
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from penstock.broker.call import Call
from penstock.broker.clock import Clock, SystemClock
from penstock.broker.cluster_state import ClusterState
from penstock.broker.compacting import Compacting
from penstock.broker.config.rules import TableRules
from penstock.broker.config.typed import BrokerConfig, TopicConfig
from penstock.broker.disk_space import DiskSpace
from penstock.broker.dispatch import Dispatcher
from penstock.broker.flow_control import Budget, Cork
from penstock.broker.flushing import Flushing
from penstock.broker.group_coordinators import GroupCoordinators
from penstock.broker.handlers import ROUTERS
from penstock.broker.helper.inline import InlineHelper
from penstock.broker.helper.process import HelperProcess
from penstock.broker.helper.task import Helper
from penstock.broker.housekeeping import Housekeeping
from penstock.broker.listener import Dispatch, Listener
from penstock.broker.metrics.meters import Meters
from penstock.broker.partitions import Partitions
from penstock.broker.producer_ids import ProducerIds
from penstock.broker.router import route_table
from penstock.broker.scrubbing import Scrubbing
from penstock.broker.waiting import Deadlines
from penstock.machines import topic_names
from penstock.machines.cluster import BrokerImage, ClusterImage
from penstock.machines.controller import TopicDefaults
from penstock.machines.decisions import Refused
from penstock.machines.fetch_sessions import FetchSessions
from penstock.metadata.memory import MemoryStore
from penstock.metadata.sqlite import SqliteStore
from penstock.metadata.store import MetadataStore
from penstock.protocol.error_codes import ErrorCode
from penstock.storage.data_directory import DataDirectory
from penstock.storage.files import Files, RealFiles

log = logging.getLogger(__name__)

UNANSWERED_BYTES = 256 * 1024 * 1024
GRACE_SECONDS = 5.0


class Broker:
    """`await start()`, then it serves until `await stop()`. `address` tells the port where port 0 was asked for."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock | None = None,
        files: Files | None = None,
        store: MetadataStore | None = None,
        intercept: Callable[[Dispatch], Dispatch] | None = None,
    ) -> None:
        self.config = config
        self.clock = clock or SystemClock()
        self._files = files or RealFiles()
        self._given_store = store
        self._intercept = intercept
        self.node_id = config.node_id
        self.data_path = config.log_dirs[0]
        self.routes = route_table(ROUTERS)
        self._rules = TableRules(config)
        self._ports: dict[str, int] = {}
        self.is_running = False
        self._is_killed = False
        self.metrics_address: tuple[str, int] | None = None
        self._partitions: Partitions | None = None
        self._groups: GroupCoordinators | None = None
        self._compacting: Compacting | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        # Set when the disk has failed: the broker answers nothing but that, and has to be stopped.
        self.failed = asyncio.Event()
        self.failure: str | None = None

    # Starting, in this order; stopping, in the reverse

    async def start(self) -> None:
        undo: list[Callable[[], Awaitable[None] | None]] = []
        self.loop = asyncio.get_running_loop()
        self.failure = None
        self.failed.clear()
        self._is_killed = False
        began = self.loop.time()
        try:
            self._start_meters(undo)
            await self._open_metadata(undo)
            await self._open_storage(undo)
            await self._take_part(undo)
            await self._open_listeners(undo)
            await self._open_metrics(undo)
        except BaseException:
            await self._undo(undo)
            raise
        self._to_undo = undo
        self.is_running = True
        reports = self.directory.reports.values()
        log.info(
            "started",
            extra={
                "node_id": self.node_id,
                "ports": self._ports,
                "partitions": len(self.partitions),
                "was_clean": self.directory.was_clean,
                "scanned_bytes": sum(report.scanned_bytes for report in reports),
                "cut_bytes": sum(report.cut_bytes for report in reports),
                "seconds": round(self.loop.time() - began, 3),
            },
        )

    async def stop(self) -> None:
        """Answer what is under way, flush, and leave the clean marker."""
        if self.is_running:
            self.is_running = False
            await self._undo(self._to_undo)

    async def kill(self) -> None:
        """End as if the process had died: nobody gets an answer, and nothing that is not written yet ever is."""
        if self.is_running:
            self._is_killed = True
            self.listener.abort_all("the broker was killed")
            await self.stop()

    @staticmethod
    async def _undo(steps: list[Callable[[], Awaitable[None] | None]]) -> None:
        failure: Exception | None = None
        while steps:
            try:
                waited = steps.pop()()
                if waited is not None:
                    await waited
            except Exception as error:
                # What comes after it is undone all the same: nothing stays open or locked.
                failure = failure or error
        if failure is not None:
            raise failure

    def _start_meters(self, undo: list[Callable[[], Awaitable[None] | None]]) -> None:
        self.meters = Meters((route.api for route in self.routes.values()), self.loop)
        self.meters.start()
        undo.append(self.meters.close)

    async def _open_metadata(self, undo: list[Callable[[], Awaitable[None] | None]]) -> None:
        self.store = self._given_store or self._make_store()
        await self.store.open()
        undo.append(self.store.close)
        self.cluster_id = await self.store.cluster_id()
        self.broker_epoch = await self.store.register(self.node_id, b"")
        self.cluster = ClusterState(self.store, self._rules, self._image_changed)
        await self.cluster.load(self.node_id)
        self._follow_configs()

    def _make_store(self) -> MetadataStore:
        if isinstance(self._files, RealFiles):
            if not os.path.isdir(self.data_path):
                os.makedirs(self.data_path)
                self._files.sync_directory(os.path.dirname(os.path.abspath(self.data_path)))
            return SqliteStore(os.path.join(self.data_path, "metadata.sqlite"))
        return MemoryStore()

    async def _open_storage(self, undo: list[Callable[[], Awaitable[None] | None]]) -> None:
        path = os.path.join(self.data_path, "logs")
        unlinking = ThreadPoolExecutor(1, "penstock-unlink")
        self.directory = DataDirectory(path, self._files, cluster_id=self.cluster_id, unlink_later=unlinking.submit)
        undo.append(self._close_directory)
        undo.append(unlinking.shutdown)
        self.disk = DiskSpace(
            self._files,
            path,
            reserve_bytes=lambda: self.config.integer("penstock.disk.reserve.bytes"),
            became_low=self._disk_became_low,
        )
        self.cork = Cork(self.loop, self._end_of_read)
        self.deadlines = Deadlines(self.loop, after_tick=self.cork.release)
        undo.append(self.deadlines.close)
        self.fetch_sessions = FetchSessions(self.config.integer("max.incremental.fetch.session.cache.slots"))
        self.producer_ids = ProducerIds(self.cluster)
        self._partitions = self.partitions = Partitions(
            self.node_id,
            self.directory,
            self.image,
            lambda topic: TopicConfig(topic.configs, self.config).settings(),
            self.clock.now_ms,
            after_writes=self._wrote,
            is_reading=lambda: self.cork.is_held,
            disk_broke=self._disk_failed,
            disk=self.disk,
        )
        self.flushing = Flushing(
            self.directory,
            now_ms=self.clock.now_ms,
            somebody_waits=self.partitions.somebody_waits,
            flushed=self._flushed,
            failed=self._disk_failed,
            meter=self.meters.flushes,
        )

    async def _take_part(self, undo: list[Callable[[], Awaitable[None] | None]]) -> None:
        """Tell the cluster that this broker is back, and become what the cluster says."""
        endpoint = self.config.listeners[0]
        was_clean = self.directory.was_clean
        rack = self.config.string("broker.rack") if self.config["broker.rack"] is not None else None
        await self.cluster.change(
            lambda controller: controller.register_broker(
                self.node_id, broker_epoch=self.broker_epoch, host=endpoint.host, port=endpoint.port, rack=rack
            )
        )
        await self.cluster.change(lambda controller: controller.broker_restarted(self.node_id, clean=was_clean))
        self.partitions.open_all()
        if self.directory.failure is not None:
            raise self.directory.failure
        if self.directory.flusher.has_work:
            # Elections are durable before anybody is served.
            self.directory.flusher.flush()
        self.flushing.start()
        undo.append(self._close_flushing)
        self._groups = self.groups = GroupCoordinators(self)
        undo.append(self.groups.close)
        self.groups.follow()
        self.housekeeping = Housekeeping(self)
        self.housekeeping.start()
        undo.append(self.housekeeping.close)
        self.disk.start()
        undo.append(self.disk.close)
        self.scrubbing = Scrubbing(
            self._files,
            lambda: [partition.log for partition in self.partitions.all()],
            bytes_per_second=lambda: self.config.integer("penstock.scrub.bytes.per.second"),
        )
        self.scrubbing.start()
        undo.append(self.scrubbing.close)
        # No other process can see files that are in this one's memory.
        is_real = isinstance(self._files, RealFiles)
        self.helper: Helper = HelperProcess() if is_real else InlineHelper(self._files)
        undo.append(self.helper.close)
        self._compacting = self.compacting = Compacting(self, self.helper, disk_failed=self._disk_failed)
        self.compacting.start()
        undo.append(self.compacting.close)

    async def _open_listeners(self, undo: list[Callable[[], Awaitable[None] | None]]) -> None:
        dispatcher = Dispatcher(self, self.routes)
        undo.append(dispatcher.close)
        dispatch = dispatcher.dispatch if self._intercept is None else self._intercept(dispatcher.dispatch)
        self.budget = Budget(UNANSWERED_BYTES)
        self.listener = Listener(
            dispatch,
            cork=self.cork,
            budget=self.budget,
            meter=self.meters.requests,
            max_request_bytes=self.config.integer("socket.request.max.bytes"),
            max_connections=self.config.integer("max.connections"),
            max_connections_per_address=self.config.integer("max.connections.per.ip"),
            max_idle_seconds=self.config.integer("connections.max.idle.ms") / 1000,
        )
        undo.append(lambda: self.listener.close(GRACE_SECONDS, end_waits=self._end_waits))
        await self.listen()

    async def listen(self) -> None:
        """Let clients connect: at the same ports as before, if they could already."""
        for endpoint in self.config.listeners:
            port = self._ports.get(endpoint.name, endpoint.port)
            self._ports[endpoint.name] = await self.listener.open(endpoint.name, endpoint.host, port)

    async def _open_metrics(self, undo: list[Callable[[], Awaitable[None] | None]]) -> None:
        endpoint = self.config.metrics_listener
        if endpoint is not None:
            from penstock.broker.metrics.endpoint import MetricsEndpoint

            page = MetricsEndpoint(self)
            self.metrics_address = endpoint.host, await page.open(endpoint.host, endpoint.port)
            undo.append(page.close)

    def _close_directory(self) -> None:
        if self._is_killed:
            self.directory.abandon()
            return
        for partition in self.partitions.all():
            partition.prepare_stop()
        if not self.directory.close(broker_epoch=self.broker_epoch) and self.directory.failure is None:
            log.warning("no room for the clean-shutdown marker: the next start checks the ends of the logs")

    async def _close_flushing(self) -> None:
        if not self._is_killed:
            self.partitions.write_staged()
        await self.flushing.close()

    def _end_waits(self) -> None:
        self.groups.end_waits()
        self.deadlines.expire_all()

    # What happens

    def _end_of_read(self) -> None:
        self.partitions.end_of_read()

    def _wrote(self, is_waited_for: bool) -> None:
        self.flushing.wake(urgent=is_waited_for)
        self.cork.release()

    def _flushed(self, round: Any) -> None:
        self.partitions.flushed(round)
        self.cork.release()

    def _disk_became_low(self) -> None:
        self.housekeeping.come_early()

    def _disk_failed(self, error: OSError) -> None:
        if self.failed.is_set():
            return
        self.failure = (
            f"the disk of {self.data_path} has failed: {error}. Nothing that it may have lost was acknowledged by "
            "acks=all. Look for the cause in the log of the operating system, and start the broker again once the disk "
            "can be trusted"
        )
        log.critical("the disk has failed", extra={"path": self.data_path, "error": str(error)})
        self.partitions.disk_failed(f"the disk has failed: {error}")
        self.failed.set()
        self.cork.release()

    def _image_changed(self, topics: set[str]) -> None:
        self._follow_configs()
        if self._partitions is not None:
            self._partitions.image_changed(topics)
        if self._groups is not None:
            self._groups.image_changed(topics)
        if self._compacting is not None:
            self._compacting.image_changed()

    def _follow_configs(self) -> None:
        """Configs that were set while brokers run count from now on."""
        cluster, own = self.image.cluster_configs, self.image.broker_configs.get(self.node_id, {})
        if self.config.cluster != cluster or self.config.broker != own:
            self.config = self._rules.config = self.config.with_dynamic(cluster=cluster, broker=own)
        self.meters.requests.slow.set_threshold_ms(self.config.integer("penstock.slow.request.ms"))

    # What handlers ask for

    @property
    def image(self) -> ClusterImage:
        return self.cluster.image

    @property
    def controller_id(self) -> int:
        return self.node_id

    def now_ms(self) -> int:
        return self.clock.now_ms()

    @property
    def fetch_max_bytes(self) -> int:
        return self.config.integer("fetch.max.bytes")

    @property
    def topic_defaults(self) -> TopicDefaults:
        config = self.config
        return TopicDefaults(config.integer("num.partitions"), config.integer("default.replication.factor"))

    @property
    def address(self) -> tuple[str, int]:
        """Where clients connect, by the first listener."""
        return self.addresses[self.config.listeners[0].name]

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        """What clients of each listener are told to connect to."""
        advertised = self.config.advertised_listeners(bound_ports=self._ports, machine=socket.gethostname())
        return {endpoint.name: (endpoint.host, endpoint.port) for endpoint in advertised}

    def advertised_brokers(self, call: Call) -> list[BrokerImage]:
        """All brokers, this one at the address that goes with the listener the client came by."""
        own = self.image.brokers[self.node_id]
        host, port = self.addresses.get(call.connection.listener_name, self.address)
        return [
            BrokerImage(own.broker_id, own.broker_epoch, host, port, own.rack) if node is own else node
            for node in self.image.brokers.values()
        ]

    async def create_topic(self, name: str) -> Refused | None:
        """With all the defaults, because somebody asked for it."""
        topic_id = self.draw_topic_id()
        try:
            await self.cluster.change(
                lambda controller: controller.create_topic(name, topic_id=topic_id, defaults=self.topic_defaults)
            )
        except Refused as refused:
            return refused
        return None

    def check_topic_name(self, name: str) -> ErrorCode | None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION if topic_names.problem(name) else None

    def draw_topic_id(self) -> bytes:
        while (drawn := secrets.token_bytes(16)) in self.image.topics_by_id or drawn[:8] == bytes(8):
            pass
        return drawn

    def draw_member_id(self) -> str:
        return str(uuid.uuid4())

    def draw_session_id(self) -> int:
        return secrets.randbelow(0x7FFF_FFFF - 1) + 1

    def keep(self, task: "asyncio.Task[Any]") -> None:
        """Hold on to a task until it is done, as the loop does not."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def disk_bytes(self) -> tuple[int, int]:
        """Free and total bytes of the disk that the data lies on."""
        return self._files.free_bytes(self.data_path), self._files.total_bytes(self.data_path)
