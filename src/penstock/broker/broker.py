"""A broker starts and stops, many times in a process if need be, and installs nothing outside itself."""

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeAlias

from penstock.broker.clock import Clock, SystemClock
from penstock.broker.cluster.controlling import Controlling
from penstock.broker.cluster.in_sync import InSync
from penstock.broker.cluster.racing import race
from penstock.broker.cluster.registration import BrokerRegistration
from penstock.broker.cluster.replicator import Replicator
from penstock.broker.cluster.state import ClusterState
from penstock.broker.cluster.stores import LOGS, make_store, refuse_alone
from penstock.broker.config.rules import TableRules
from penstock.broker.config.typed import BrokerConfig, TopicConfig
from penstock.broker.coordinators.groups import GroupCoordinators
from penstock.broker.coordinators.producer_ids import ProducerIds
from penstock.broker.dispatch import Dispatcher
from penstock.broker.engine.turn import Turn
from penstock.broker.handlers import ROUTERS
from penstock.broker.helper.inline import InlineHelper
from penstock.broker.helper.process import NICENESS, HelperProcess
from penstock.broker.helper.task import Helper
from penstock.broker.metrics.meters import Meters
from penstock.broker.network.flow_control import Budget
from penstock.broker.network.listener import Dispatch, Listener
from penstock.broker.network.peer import Address
from penstock.broker.network.peers import Peers
from penstock.broker.pacing import Pacing
from penstock.broker.partitions.deadlines import Deadlines
from penstock.broker.partitions.disk_space import DiskSpace
from penstock.broker.partitions.fetch_wait import FetchRoom
from penstock.broker.partitions.record_checking import RecordChecking
from penstock.broker.partitions.registry import Partitions
from penstock.broker.partitions.replica_reads import ReplicaReads
from penstock.broker.router import route_table
from penstock.broker.services import Services
from penstock.broker.upkeep.compactor import Compacting
from penstock.broker.upkeep.flushing import Flushing
from penstock.broker.upkeep.held_offsets import HeldOffsets
from penstock.broker.upkeep.high_watermarks import HighWatermarkSaving
from penstock.broker.upkeep.housekeeping import Housekeeping
from penstock.broker.upkeep.scrubber import Scrubbing
from penstock.broker.upkeep.upkeep import Upkeep
from penstock.broker.upkeep.worker import ThreadWorker, Worker
from penstock.machines.broker_proof import Identity
from penstock.machines.cluster import ClusterImage, ImageChange
from penstock.machines.cluster_records import Listeners
from penstock.machines.decisions import Refused
from penstock.machines.fetch_sessions import FetchSessions
from penstock.machines.registration import folder_problem
from penstock.metadata.store import MetadataStore, StoreError, StoreRefusedError
from penstock.protocol.schema import Message
from penstock.protocol.schemas.replication import BrokerHeartbeatRequest
from penstock.storage.data_directory import DataDirectory, read_folder
from penstock.storage.errors import DirectoryRefusedError
from penstock.storage.files import Files, RealFiles

log = logging.getLogger(__name__)

UNANSWERED_BYTES = 256 * 1024 * 1024
GRACE_SECONDS = 5.0
# Between two looks whether the controller has relieved a broker that stops.
HAND_OVER_SECONDS = 0.05
# Connections of another broker that have not proved yet to be its own, beyond max.connections.
PLACES_FOR_BROKER = 4
# Limits the partitions that a log line names.
NAMED = 10
# Partitions that come or go in one turn of the loop.
PARTITIONS_AT_ONCE = 5


Undo: TypeAlias = list[Callable[[], Awaitable[None] | None]]


class Broker:
    """`await start()`, then it serves until `await stop()`. `address` has the port that a listener on port 0 got."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock | None = None,
        files: Files | None = None,
        store: MetadataStore | None = None,
        intercept: Callable[[Dispatch], Dispatch] | None = None,
        may_reach: Callable[[int], bool] = lambda broker_id: True,
        make_worker: Callable[[str], Worker] = ThreadWorker,
    ) -> None:
        self._rules = TableRules(config)
        self._clock = clock or SystemClock()
        self._files = files or RealFiles()
        self._given_store = store
        self._intercept = intercept
        self._may_reach = may_reach
        self._make_worker = make_worker
        self._ports: dict[str, int] = {}
        self.is_running = False
        self._is_killed = False
        # Partitions become what the image says by one task at a time.
        self._following = asyncio.Lock()
        self._has_joined = False
        self.metrics_address: tuple[str, int] | None = None
        # Set when the disk has failed, or the broker cannot follow the cluster any more: it has to be stopped.
        self.failed = asyncio.Event()
        self.failure: str | None = None

    # Starting, in this order; stopping, in the reverse

    async def start(self) -> None:
        undo: Undo = []
        self.failure = None
        self.failed.clear()
        self._is_killed = self._has_joined = False
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            meters = self._start_meters(undo)
            cluster = await self._open_metadata(undo)
            self._open_storage(undo, cluster, meters)
            await self._paced(self.services.partitions.recover(cluster.image))
            self._tell_of_unknown_logs()
            await self._bind_listeners(undo)
            await self._join_cluster(undo)
            self._start_work(undo)
            await self._accept_clients(undo)
            await self._open_metrics(undo)
            undo.append(self._hand_over)
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
                "partitions": len(self.services.partitions),
                "was_clean": self.directory.was_clean,
                "scanned_bytes": sum(report.scanned_bytes for report in reports),
                "cut_bytes": sum(report.cut_bytes for report in reports),
                "seconds": round(loop.time() - began, 3),
            },
        )

    async def stop(self) -> None:
        """Answer what is under way, flush, and leave the clean marker."""
        if self.is_running:
            self.is_running = False
            await self._undo(self._to_undo)

    async def kill(self) -> None:
        """End as if the process had died: no client gets an answer, and nothing that is not written yet ever is."""
        if self.is_running:
            self._is_killed = True
            self.listener.abort_all("the broker was killed")
            await self.stop()

    @staticmethod
    async def _undo(steps: Undo) -> None:
        failure: Exception | None = None
        while steps:
            try:
                waited = steps.pop()()
                if waited is not None:
                    await waited
            except Exception as error:
                # The other steps are undone all the same: nothing stays open or locked.
                failure = failure or error
        if failure is not None:
            raise failure

    def _start_meters(self, undo: Undo) -> Meters:
        meters = Meters((route.api for route in route_table(ROUTERS).values()), asyncio.get_running_loop())
        meters.start()
        undo.append(meters.close)
        return meters

    async def _open_metadata(self, undo: Undo) -> ClusterState:
        self._store = self._given_store or make_store(self.config, self._files)
        await self._store.open()
        undo.append(self._close_store)
        self.cluster_id = await self._store.cluster_id()
        self._secret = await self._store.secret()
        cluster = ClusterState(self._store, self._image_changed)
        await cluster.load()
        self._refuse_folder_of_another(cluster.image)
        if self._given_store is None:
            refuse_alone(self.config, cluster.image)
        self._rules.config = self._config_now(cluster.image)
        return cluster

    async def _close_store(self) -> None:
        abandon = getattr(self._store, "abandon", None)
        if self._is_killed and abandon is not None:
            # A process that died says nothing to the store: what it held there ends with its session.
            abandon()
        else:
            await self._store.close()

    def _refuse_folder_of_another(self, image: ClusterImage) -> None:
        """A broker under another number would lead none of the partitions whose logs lie here."""
        found = read_folder(self._files, os.path.join(self.data_path, LOGS))
        for broker in image.brokers.values():
            if found is not None and broker.folder == found[0] and broker.broker_id != self.node_id:
                raise DirectoryRefusedError(
                    f"{self.data_path} belongs to node {broker.broker_id}, and node.id is {self.node_id}: set "
                    f"node.id={broker.broker_id}, or choose another data folder"
                )

    def _open_storage(self, undo: Undo, cluster: ClusterState, meters: Meters) -> None:
        loop, now_ms = asyncio.get_running_loop(), self._clock.now_ms
        path = os.path.join(self.data_path, LOGS)
        unlinking = self._make_worker("penstock-unlink")
        self.directory = DataDirectory(path, self._files, cluster_id=self.cluster_id, unlink_later=unlinking.put)
        undo.append(self._close_directory)
        undo.append(unlinking.close)
        disk = DiskSpace(
            self._files,
            path,
            reserve_bytes=lambda: self.config.integer("penstock.disk.reserve.bytes"),
            became_low=self._disk_became_low,
        )

        turn = Turn(loop, now_ms, disk_broke=self._disk_failed)
        partitions = Partitions(
            self.node_id,
            self.directory,
            cluster.image,
            lambda topic: TopicConfig(topic.configs, self.config).settings(),
            now_ms,
            turn=turn,
            disk=disk,
            broker_epoch=lambda: self.broker_epoch,
            lag_ms=lambda: self.config.integer("replica.lag.time.max.ms"),
        )
        deadlines = Deadlines(loop)
        undo.append(deadlines.close)
        flushing = Flushing(
            self.directory,
            turn,
            now_ms=now_ms,
            urgency=partitions.urgency,
            flushed=partitions.flushed,
            failed=self._disk_failed,
            meter=meters.flushes,
            make_worker=self._make_worker,
        )
        controlling = Controlling(
            self._store,
            cluster,
            self._rules,
            node_id=self.node_id,
            max_partitions=self.config.integer("penstock.max.partitions"),
        )
        disk.changed = partitions.disk_changed
        turn.wake_flusher = flushing.wake
        self.services = Services(
            config=self.config,
            node_id=self.node_id,
            cluster_id=self.cluster_id,
            routes=route_table(ROUTERS),
            ports=self._ports,
            loop=loop,
            now_ms=now_ms,
            cluster=cluster,
            controlling=controlling,
            registration=BrokerRegistration(
                self._store,
                cluster,
                node_id=self.node_id,
                folder=self.directory.folder_id,
                rack=self.config.string("broker.rack") if self.config["broker.rack"] is not None else None,
                listeners=self._advertised,
                fenced=partitions.refuse_unconfirmed,
                offline_logs=lambda: len(partitions.failed),
                log_ends=partitions.log_ends,
                flush=self.config.string("penstock.flush"),
            ),
            partitions=partitions,
            turn=turn,
            groups=GroupCoordinators(cluster, partitions, ask=self._ask, config=lambda: self.config, clock=self._clock),
            fetch_room=FetchRoom(partitions, deadlines, turn),
            replica_reads=ReplicaReads(partitions, deadlines, turn),
            fetch_sessions=FetchSessions(self.config.integer("max.incremental.fetch.session.cache.slots")),
            producer_ids=ProducerIds(self._ask, self._identity),
            # A helper of its own, since producers wait for it, and a round of compaction takes its time.
            record_checking=RecordChecking(self._make_helper(niceness=0)),
            pacing=Pacing(loop, self.config.integer("penstock.reply.max.bytes")),
            meters=meters,
            disk=disk,
            peers=Peers(secret=self._secret, own=self._identity, find=self._find_peer, may_reach=self._may_reach),
        )
        undo.append(self.services.peers.close)
        self._replicator = Replicator(
            self.node_id, lambda: self.services.peers, turn, now_ms, broker_epoch=lambda: self.broker_epoch
        )
        self._in_sync = InSync(self.node_id, self._ask, broker_epoch=lambda: self.broker_epoch, meter=meters.in_sync)
        partitions.replicator, partitions.look_at = self._replicator, self._in_sync.look_at
        partitions.give_up = self._in_sync.give_up
        self.upkeep = self._make_upkeep(flushing)

    def _make_upkeep(self, flushing: Flushing) -> Upkeep:
        partitions, helper = self.services.partitions, self._make_helper()
        return Upkeep(
            flushing,
            Housekeeping(
                partitions,
                config=lambda: self.config,
                clock=self._clock,
                held_offsets=HeldOffsets(self.services.groups, self.node_id, lambda: self.services.peers),
            ),
            Scrubbing(
                self._files,
                lambda: [partition.log for partition in partitions.replicas()],
                bytes_per_second=lambda: self.config.integer("penstock.scrub.bytes.per.second"),
                when_damaged=partitions.found_damage_in,
            ),
            Compacting(
                partitions,
                self.directory,
                flushing,
                helper,
                config=lambda: self.config,
                clock=self._clock,
                disk=self.services.disk,
                disk_failed=self._disk_failed,
            ),
            helper,
        )

    def _make_helper(self, niceness: int = NICENESS) -> Helper:
        # No other process can see files that are in this one's memory.
        return HelperProcess(niceness=niceness) if isinstance(self._files, RealFiles) else InlineHelper(self._files)

    def _tell_of_unknown_logs(self) -> None:
        if unknown := self.services.partitions.unknown():
            log.warning(
                "logs in the data folder that the cluster does not know as this broker's: their topics were deleted "
                "while it was away, or the metadata was imported from an export that is older; they are kept",
                extra={"logs": len(unknown), "partitions": ", ".join(unknown[:NAMED]) + ", …" * (len(unknown) > NAMED)},
            )

    async def _bind_listeners(self, undo: Undo) -> None:
        """Take the addresses that the cluster is told of. Nothing can connect there yet."""
        services = self.services
        dispatcher = Dispatcher(services, services.routes)
        undo.append(dispatcher.close)
        dispatch = dispatcher.dispatch if self._intercept is None else self._intercept(dispatcher.dispatch)
        max_request_bytes = self.config.integer("socket.request.max.bytes")
        # Half of it is for requests that have not come to their end, beside one request of any size.
        budget = Budget(max(UNANSWERED_BYTES, max_request_bytes * 5 // 2))
        self.listener = Listener(
            dispatch,
            turn=services.turn,
            budget=budget,
            meter=services.meters.requests,
            max_request_bytes=max_request_bytes,
            max_connections=self.config.integer("max.connections"),
            max_connections_per_address=self.config.integer("max.connections.per.ip"),
            max_idle_seconds=self.config.integer("connections.max.idle.ms") / 1000,
            broker_places=self._broker_places,
        )
        undo.append(self.listener.stop_listening)
        await self._bind()

    async def _join_cluster(self, undo: Undo) -> None:
        """Register, follow the cluster, and become what it says once it knows of this registration."""
        services, registration = self.services, self.services.registration
        directory = self.directory
        await registration.register(was_clean=directory.was_clean, may_lack_unflushed=directory.may_lack_unflushed)
        undo.append(self._leave_cluster)
        self._cluster_tasks = [self._supervise(services.cluster.follow()), self._supervise(registration.keep())]
        self._controlling_task = self._supervise(services.controlling.run())
        await race(registration.served(), self.failed.wait())
        if self.failure is not None:
            raise StoreRefusedError(self.failure)
        directory.note_boot()
        async with self._following:
            await self._paced(services.partitions.lead_all())
        if self.directory.failure is not None:
            raise self.directory.failure
        self._has_joined = True
        if problem := folder_problem(services.image, self.node_id):
            log.error("the data folder is another than the broker had", extra={"error": problem})

    def _supervise(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Work of the cluster goes on as long as the broker: if it ends, the broker fails and says why."""
        task = asyncio.create_task(work)
        task.add_done_callback(self._cluster_task_ended)
        return task

    async def _hand_over(self) -> None:
        """Before clients are sent away, let the controller take from this broker what it leads."""
        services = self.services
        others = [broker for broker in services.image.live_brokers() if broker.broker_id != self.node_id]
        enabled = self.config.boolean("controlled.shutdown.enable")
        if self._is_killed or self.failed.is_set() or not others or not enabled:
            return
        # The next coordinators may know more of groups as soon as they are elected, and this broker hears of it later.
        services.groups.end_waits()
        try:
            async with asyncio.timeout(GRACE_SECONDS):
                await race(self._ask_to_be_relieved(), self.failed.wait())
        except (Refused, StoreError, TimeoutError) as error:
            log.warning("this broker stops without handing over what it leads", extra={"error": str(error)})
        # The next controller need not wait until the clients of this one have gone.
        await self._stop_controlling()

    async def _ask_to_be_relieved(self) -> None:
        services = self.services
        request = BrokerHeartbeatRequest(
            broker_id=self.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=services.cluster.index,
            want_shut_down=True,
        )
        while not (await services.forwarder.ask(request, timeout=GRACE_SECONDS)).should_shut_down:
            await asyncio.sleep(HAND_OVER_SECONDS)

    async def _stop_controlling(self) -> None:
        self._controlling_task.cancel()
        await asyncio.wait([self._controlling_task])
        if not self._is_killed:
            await self.services.controlling.close()

    async def _leave_cluster(self) -> None:
        await self._stop_controlling()
        for task in self._cluster_tasks:
            task.cancel()
        await asyncio.wait(self._cluster_tasks)
        self.services.cluster.close()

    def _start_work(self, undo: Undo) -> None:
        services, upkeep = self.services, self.upkeep
        upkeep.flushing.start()
        undo.append(self._close_flushing)
        undo.append(services.groups.close)
        services.groups.follow()
        saving = HighWatermarkSaving(services.partitions, self.directory)
        saving.start()
        undo.append(lambda: saving.close(saves=not self._is_killed))
        self._in_sync.start()
        undo.append(self._in_sync.close)
        undo.append(self._replicator.close)
        upkeep.housekeeping.start()
        undo.append(upkeep.housekeeping.close)
        services.disk.start()
        undo.append(services.disk.close)
        upkeep.scrubbing.start()
        undo.append(upkeep.scrubbing.close)
        undo.append(upkeep.helper.close)
        undo.append(services.record_checking.close)
        upkeep.compacting.start()
        undo.append(upkeep.compacting.close)

    async def _accept_clients(self, undo: Undo) -> None:
        undo.append(lambda: self.listener.close(GRACE_SECONDS, end_waits=self._end_waits))
        await self.listener.accept()

    async def listen(self) -> None:
        """Let clients connect again, at the ports that were bound before."""
        await self._bind()
        await self.listener.accept()

    async def _bind(self) -> None:
        for endpoint in self.config.listeners:
            port = self._ports.get(endpoint.name, endpoint.port)
            self._ports[endpoint.name] = await self.listener.bind(endpoint.name, endpoint.host, port)

    def _advertised(self) -> Listeners:
        advertised = self.config.advertised_listeners(bound_ports=self._ports, machine=socket.gethostname())
        return {endpoint.name: (endpoint.host, endpoint.port) for endpoint in advertised}

    async def _open_metrics(self, undo: Undo) -> None:
        endpoint = self.config.metrics_listener
        if endpoint is not None:
            from penstock.broker.metrics.catalogue import Sources
            from penstock.broker.metrics.endpoint import MetricsEndpoint

            page = MetricsEndpoint(Sources(self.services, self.listener, self.upkeep))
            self.metrics_address = endpoint.host, await page.open(endpoint.host, endpoint.port)
            undo.append(page.close)

    def _close_directory(self) -> None:
        if self._is_killed or not (self.directory.was_clean or self._has_joined):
            # After an unclean stop the leader epochs have to grow: until they have, the folder is not clean.
            self.directory.abandon()
            return
        for partition in self.services.partitions.replicas():
            partition.prepare_stop()
        if not self.directory.close(broker_epoch=self.broker_epoch) and self.directory.failure is None:
            log.warning("no room for the clean-shutdown marker: the next start checks the ends of the logs")

    async def _close_flushing(self) -> None:
        if not self._is_killed:
            self.services.turn.settle()
        await self.upkeep.flushing.close()

    def _end_waits(self) -> None:
        self.services.groups.end_waits()
        self.services.fetch_room.deadlines.expire_all()

    # Other brokers

    def _identity(self) -> Identity:
        return Identity(self.node_id, self.broker_epoch)

    async def _ask(self, request: Message, *, timeout: float) -> Any:
        return await self.services.forwarder.ask(request, timeout=timeout)

    def _broker_places(self, listener_name: str) -> int:
        """How many connections that may turn out to be brokers' are let in when there are too many already."""
        if listener_name != self.config.inter_broker_listener:
            return 0
        others = [broker for broker in self.services.image.live_brokers() if broker.broker_id != self.node_id]
        return PLACES_FOR_BROKER * len(others)

    def _find_peer(self, broker_id: int) -> Address | None:
        """Where a broker that is alive listens for others."""
        broker = self.services.image.brokers.get(broker_id)
        address = None if broker is None else broker.address(self.config.inter_broker_listener)
        if broker is None or address is None or not broker.is_alive:
            return None
        return Address(*address, broker.broker_epoch)

    # What happens

    def _disk_became_low(self) -> None:
        self.upkeep.housekeeping.come_early()

    def _disk_failed(self, error: OSError) -> None:
        if self.failed.is_set():
            return
        self.failure = (
            f"the disk of {self.data_path} has failed: {error}. Nothing that it may have lost was acknowledged by "
            "acks=all. Look for the cause in the log of the operating system, and start the broker again once the disk "
            "can be trusted"
        )
        log.critical("the disk has failed", extra={"path": self.data_path, "error": str(error)})
        self.services.partitions.disk_failed(f"the disk has failed: {error}")
        self.failed.set()

    def _cluster_task_ended(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is None or self.failed.is_set():
            return
        if isinstance(error, StoreError):
            self.failure = f"the broker cannot follow its cluster any more: {error}"
            log.critical("the broker cannot follow its cluster any more", extra={"error": str(error)})
        else:
            self.failure = f"an internal error keeps the broker from following its cluster: {error!r}; start it again"
            log.critical("an internal error keeps the broker from following its cluster", exc_info=error)
        self.failed.set()

    async def _image_changed(self, change: ImageChange) -> None:
        services = self.services
        # Before anything is waited for, as replies would tell the old otherwise.
        services.metadata_pieces.image_changed(change)
        if change.configs:
            self._set_config(self._config_now(services.image))
        async with self._following:
            await self._paced(services.partitions.image_changed(change))
        services.groups.image_changed(change)
        self.upkeep.compacting.image_changed()

    async def _paced(self, steps: Iterator[None]) -> None:
        """Work that takes long with many partitions. While it lasted, the store would take the broker for dead."""
        for number, _ in enumerate(steps, 1):
            if number % PARTITIONS_AT_ONCE == 0:
                await self.services.pacing.turn()

    def _config_now(self, image: ClusterImage) -> BrokerConfig:
        """The config with what was set while brokers run."""
        cluster, own = image.cluster_configs, image.broker_configs.get(self.node_id, {})
        if self.config.cluster == cluster and self.config.broker == own:
            return self.config
        return self.config.with_dynamic(cluster=cluster, broker=own)

    def _set_config(self, config: BrokerConfig) -> None:
        self._rules.config = config
        self.services.configure(config)

    # What the process that runs the broker asks for

    @property
    def config(self) -> BrokerConfig:
        return self._rules.config

    @property
    def node_id(self) -> int:
        return self.config.node_id

    @property
    def broker_epoch(self) -> int:
        """The number of the present registration."""
        return self.services.registration.broker_epoch

    @property
    def data_path(self) -> str:
        return self.config.log_dirs[0]

    @property
    def address(self) -> tuple[str, int]:
        """The host and the port where clients connect, by the first listener."""
        return self.services.address
