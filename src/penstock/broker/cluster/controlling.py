"""The controller at work: it holds the lease, decides for the cluster, and writes what it decided to the metadata log.

Every broker is ready for that, and the one that gets the lease does it. Decisions that are asked for while an entry is
written share the next entry: the write itself is the clock. The controller decides by an image of its own, which has
what it is about to write; all others, and the rest of this broker, go by the log.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from penstock.broker.cluster.racing import race
from penstock.broker.cluster.state import ClusterState
from penstock.broker.config.rules import TableRules
from penstock.machines import cluster_records
from penstock.machines.cluster import ClusterImage
from penstock.machines.cluster_records import Record
from penstock.machines.controller import DEFAULT, MAX_PARTITIONS, REPLICAS, Controller
from penstock.machines.decisions import ControllerDecision, Refused
from penstock.machines.groups.sharding import OFFSETS_TOPIC
from penstock.machines.registration import DamagedDetailsError, Registration
from penstock.metadata.store import (
    ConflictError,
    Contact,
    EntriesDroppedError,
    FencedError,
    Member,
    MetadataStore,
    OutcomeUnknownError,
    SessionLostError,
    StoreClosedError,
    StoreError,
    StoreRefusedError,
)
from penstock.protocol.error_codes import ErrorCode

log = logging.getLogger(__name__)

SNAPSHOT_EVERY_ENTRIES: Final = 1000
SNAPSHOT_EVERY_BYTES: Final = 4 * 1024 * 1024
# Commands that are decided for one write.
GATHERED_COMMANDS: Final = 1000
# Commands that are decided in one turn of the loop.
DECIDED_AT_ONCE: Final = 20
# After a controller resigned, and while it waits for the broker to follow.
PAUSE_SECONDS: Final = 0.05
# After the store could not give out the lease, for want of room perhaps.
RETRY_SECONDS: Final = 1.0
RELEASE_SECONDS: Final = 1.0

# The configs that say how many replicas the topics get that the cluster makes for itself.
INTERNAL_FACTORS: Final = {OFFSETS_TOPIC: "offsets.topic.replication.factor"}

R = TypeVar("R")


class NotControllerError(Refused):
    """This broker does not decide for the cluster, or no longer. If the outcome is unknown, the change may have been
    made."""

    def __init__(
        self, message: str = "this broker is not the controller of the cluster", *, outcome_unknown: bool = False
    ) -> None:
        super().__init__(ErrorCode.NOT_CONTROLLER, message)
        self.outcome_unknown = outcome_unknown


@dataclass(slots=True, eq=False)
class _Command:
    decide: Callable[[Controller], ControllerDecision[Any]]
    done: "asyncio.Future[Any]"
    # What the controller has to do by itself: no request waits for it.
    is_own: bool = False
    # What it was answered, and with which records.
    reply: Any = None
    refusal: Exception | None = None
    records: tuple[Record, ...] = ()


@dataclass(slots=True)
class _Draft:
    """What becomes one entry: records, and the commands that are answered once it is written."""

    records: list[Record] = field(default_factory=list)
    commands: list[_Command] = field(default_factory=list)


class Controlling:
    """`run` until it is cancelled; meanwhile this broker is the controller whenever it can have the lease."""

    def __init__(
        self,
        store: MetadataStore,
        cluster: ClusterState,
        rules: TableRules,
        *,
        node_id: int,
        max_partitions: int = MAX_PARTITIONS,
    ) -> None:
        self.is_controller = False
        # Of the last time that it was.
        self.controller_epoch = 0
        # Since the broker started: elections on command of leaders that may lack committed records.
        self.unclean_elections = 0
        self._store = store
        self._cluster = cluster
        self._rules = rules
        self._node_id = node_id
        self._max_partitions = max_partitions
        self._queue: deque[_Command] = deque()
        self._asked = asyncio.Event()
        self._snapshot_due = asyncio.Event()
        self._image = ClusterImage()
        # Members that have reported where logs end of imported partitions.
        self._reports: dict[int, Registration] = {}
        self._controller = Controller(self._image, rules)
        self._index = 0
        self._snapshot_index = 0
        self._bytes_since_snapshot = 0
        self._may_hold_lease = False

    # Asking it

    async def change(self, decide: Callable[[Controller], ControllerDecision[R]]) -> R:
        """Let the controller decide; returns when the decision is in the log and this broker has followed it. `Refused`
        comes through, and `NotControllerError` is one of them."""
        # A change that was asked for is seen through whatever happens to its caller.
        return await asyncio.shield(self.submit(decide))

    def submit(self, decide: Callable[[Controller], ControllerDecision[R]]) -> "asyncio.Future[R]":
        """As `change`, for several at once: they share an entry."""
        done: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        # It is no fault that a caller which has gone does not hear of a refusal.
        done.add_done_callback(_retrieve)
        if not self.is_controller:
            done.set_exception(NotControllerError())
        else:
            self._queue.append(_Command(decide, done))
            self._asked.set()
        return done

    # Being it

    async def run(self) -> None:
        while True:
            try:
                session = await self._good_contact()
                await self._release()
                epoch = await self._store.take_controller_lease(self._node_id)
                if epoch is None:
                    await race(self._store.wait_for_lease(), self._store.wait_for_contact(Contact.GOOD, session))
                    continue
                self._may_hold_lease = True
                await self._lead(epoch, session)
            except (StoreRefusedError, StoreClosedError):
                raise
            except SessionLostError:
                await asyncio.sleep(PAUSE_SECONDS)
            except StoreError as error:
                log.warning("the controller's lease cannot be taken", extra={"error": str(error)})
                await asyncio.sleep(RETRY_SECONDS)

    async def close(self) -> None:
        """Let another broker take over at once. `run` must have ended."""
        if self._store.contact is Contact.GOOD:
            try:
                async with asyncio.timeout(RELEASE_SECONDS):
                    await self._release()
            except (StoreError, TimeoutError) as error:
                log.info("the lease ends with the session", extra={"error": str(error)})

    async def _good_contact(self) -> int:
        """Wait until there is contact; returns the session."""
        while (contact := self._store.contact) is not Contact.GOOD:
            await self._store.wait_for_contact(contact, self._store.session)
        return self._store.session

    async def _release(self) -> None:
        if self._may_hold_lease:
            await self._store.release_controller_lease()
            self._may_hold_lease = False

    async def _lead(self, epoch: int, session: int) -> None:
        """Be the controller until this broker has to resign."""
        reason = "out of contact with the metadata store, or a new session with it"
        try:
            await race(self._work(epoch), self._store.wait_for_contact(Contact.GOOD, session))
        except (StoreRefusedError, StoreClosedError):
            raise
        except StoreError as error:
            reason = str(error)
        finally:
            self.is_controller = False
            queue, self._queue = self._queue, deque()
            for command in queue:
                _answer(command, NotControllerError())
        if self.controller_epoch == epoch:
            log.warning("resigned as controller", extra={"controller_epoch": epoch, "reason": reason})
        # What made it resign may be there for a while.
        await asyncio.sleep(PAUSE_SECONDS)

    async def _work(self, epoch: int) -> None:
        await self._catch_up()
        members = await self._store.members()
        self._reports.clear()
        self._take_image()
        try:
            elected = self._controller.elected(self._node_id, epoch)
        except Refused as refused:
            if await self._store.controller() != (self._node_id, epoch):
                # This broker was slow to hear that it had the lease, and has lost it since.
                raise FencedError(epoch, self._image.controller_epoch) from None
            raise StoreRefusedError(
                f"the metadata store gives out epochs again that it gave out before ({refused.message}): it has lost "
                "what it held. If that was ZooKeeper and an export has been imported, start this broker again; "
                "otherwise stop all brokers, and import one (penstock cluster import) or restore the store"
            ) from None
        self._snapshot_index, self._bytes_since_snapshot = self._cluster.snapshot_index, 0
        self.controller_epoch = epoch
        self.is_controller = True
        self._decide_by_itself(lambda controller: elected)
        log.info("became controller", extra={"controller_epoch": epoch, "index": self._index})
        # What the members bring about goes into the first entry, with the election.
        await race(self._follow_members(members), self._write_all(), self._save_snapshots(), self._balance_leaders())

    async def _catch_up(self) -> None:
        """Nothing can be appended by others now: what is there is all that a former controller decided."""
        while True:
            try:
                entries = await self._store.entries(self._cluster.index)
            except EntriesDroppedError:
                # The tail of this broker is about to load the snapshot.
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            if not entries:
                return
            await self._cluster.reached(entries[-1][0])

    def _take_image(self) -> None:
        self._image, self._index = self._cluster.image.copy(), self._cluster.index
        self._controller = Controller(
            self._image, self._rules, max_partitions=self._max_partitions, reports=self._reports
        )

    # Writing

    async def _write_all(self) -> None:
        while True:
            await self._asked.wait()
            self._asked.clear()
            while self._queue:
                await self._write_gathered()

    async def _write_gathered(self) -> None:
        """Decide what has been asked for so far, and write it."""
        drafts = [_Draft()]
        error: Exception = NotControllerError(
            "this broker stopped being the controller meanwhile", outcome_unknown=True
        )
        try:
            await self._decide_gathered(drafts[0].commands)
            drafts = self._drafts(drafts[0].commands)
            while drafts:
                await self._write(drafts[0])
                drafts.pop(0)
        except (FencedError, ConflictError) as refusal:
            error = NotControllerError(str(refusal))
            raise
        except (OutcomeUnknownError, SessionLostError, StoreClosedError):
            raise
        except StoreError as refusal:
            # It was not written: there is no room, perhaps. What was decided on top of it is void.
            error = refusal
            log.error("the metadata log could not be written", extra={"error": str(refusal)})
            if any(command.is_own for draft in drafts for command in draft.commands):
                raise
            self._void(drafts, error)
            await self._cluster.reached(self._index)
            self._take_image()
            drafts = []
        finally:
            if drafts:
                self.is_controller = False
                self._void(drafts, error)

    @staticmethod
    def _void(drafts: Sequence[_Draft], error: Exception) -> None:
        for draft in drafts:
            for command in draft.commands:
                _answer(command, error)

    async def _decide_gathered(self, decided: list[_Command]) -> None:
        while self._queue and len(decided) < GATHERED_COMMANDS:
            command = self._queue.popleft()
            # It may be too late to answer, but not to make the change.
            decided.append(command)
            try:
                decision = command.decide(self._controller)
            except Exception as error:
                command.refusal = error
                if command.is_own:
                    log.error("the controller could not do what it has to", exc_info=error)
                continue
            command.reply, command.records = decision.reply, decision.records
            for record in decision.records:
                self._image.apply(record)
            if len(decided) % DECIDED_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _drafts(self, decided: Sequence[_Command]) -> list[_Draft]:
        """As few entries as the store's limit allows. A command is in one of them, unless it alone is too large."""
        limit = self._store.max_entry_bytes
        whole = _Draft([record for command in decided for record in command.records], list(decided))
        if len(self._encode(whole.records)) <= limit:
            return [whole]
        drafts, room = [_Draft()], limit
        for command in decided:
            # Each of them is counted with the head of an entry, so that all together are smaller.
            size = len(self._encode(command.records)) if command.records else 0
            if size > room:
                drafts += [_Draft(part) for part in cluster_records.split(command.records, limit)]
                room = limit - len(self._encode(drafts[-1].records))
            else:
                drafts[-1].records += command.records
                room -= size
            drafts[-1].commands.append(command)
        return drafts

    def _encode(self, records: Sequence[Record]) -> bytes:
        return cluster_records.encode(records, controller_epoch=self.controller_epoch, index=self._index + 1)

    async def _write(self, draft: _Draft) -> None:
        if draft.records:
            entry = self._encode(draft.records)
            await self._store.append(self.controller_epoch, self._index + 1, entry)
            self._index += 1
            self._bytes_since_snapshot += len(entry)
            if (
                self._index - self._snapshot_index >= SNAPSHOT_EVERY_ENTRIES
                or self._bytes_since_snapshot >= SNAPSHOT_EVERY_BYTES
            ):
                self._snapshot_due.set()
        # A refusal, too, may be for something that this broker has yet to see.
        self._cluster.reached(self._index).add_done_callback(partial(_followed, draft.commands))

    # Snapshots

    async def _save_snapshots(self) -> None:
        while True:
            await self._snapshot_due.wait()
            # The image of the log has nothing that is not written; it may be behind.
            await self._cluster.reached(self._index)
            index, epoch = self._cluster.index, self.controller_epoch
            records = self._cluster.image.snapshot()
            self._snapshot_index, self._bytes_since_snapshot = index, 0
            self._snapshot_due.clear()
            try:
                # Writing many topics down takes long.
                encode = partial(cluster_records.encode, records, controller_epoch=epoch, index=index)
                snapshot = await asyncio.get_running_loop().run_in_executor(None, encode)
                await self._store.save_snapshot(epoch, index, snapshot)
            except (FencedError, SessionLostError):
                raise
            except StoreError as error:
                # The log has everything; a broker that starts reads more of it.
                log.warning("no metadata snapshot", extra={"error": str(error)})

    # Members

    async def _follow_members(self, members: Mapping[int, Member]) -> None:
        before: dict[int, int] = {}
        while True:
            epochs = {broker_id: member.broker_epoch for broker_id, member in members.items()}
            # Those that a former controller has left, and those that this one has seen; some may be in the queue yet.
            alive = {broker.broker_id: broker.broker_epoch for broker in self._image.live_brokers()} | before
            for broker_id, epoch in alive.items():
                if broker_id not in epochs:
                    self._decide_by_itself(partial(Controller.broker_lost, broker_id=broker_id, broker_epoch=epoch))
            for broker_id, member in members.items():
                if before.get(broker_id) != member.broker_epoch:
                    self._register(broker_id, member)
            self._raise_internal_topics()
            self._tell_of_missing_reports()
            before = epochs
            await self._store.wait_for_members(epochs)
            members = await self._store.members()

    def _register(self, broker_id: int, member: Member) -> None:
        try:
            registration = Registration.of_member(
                broker_id, member.broker_epoch, folder=member.folder, details=member.details
            )
        except DamagedDetailsError as error:
            log.error("a broker cannot be registered", extra={"broker_id": broker_id, "error": str(error)})
            return
        if registration.offline_logs:
            facts = {"broker_id": broker_id, "logs": registration.offline_logs}
            log.error("a broker has logs that it cannot open; its own log says why", extra=facts)

        def decide(controller: Controller) -> ControllerDecision[None]:
            self._warn_of_shared_addresses(registration)
            decision = controller.register_broker(registration)
            # For the reports that come after it.
            self._reports.pop(broker_id, None)
            if registration.log_ends:
                self._reports[broker_id] = registration
            return decision

        self._decide_by_itself(decide)

    def _raise_internal_topics(self) -> None:
        """Topics that the cluster made for itself when it had fewer brokers get as many replicas as they would now."""
        config = self._rules.config
        default = config.creation_defaults.replication_factor
        factor = REPLICAS if default == DEFAULT else default
        factors = {topic: factor for topic, name in INTERNAL_FACTORS.items() if name not in config.static}

        def decide(controller: Controller) -> ControllerDecision[int]:
            decision = controller.raise_replicas(factors)
            if decision.reply:
                facts = {"partitions": decision.reply, "topics": sorted(factors)}
                log.info("internal topics get more replicas, on brokers that have joined", extra=facts)
            return decision

        self._decide_by_itself(decide)

    def _tell_of_missing_reports(self) -> None:
        """Imported partitions without a leader are no fault, and an operator has to know what they wait for."""

        def decide(controller: Controller) -> ControllerDecision[None]:
            missing, waiting = controller.missing_reports()
            if waiting:
                log.warning(
                    "imported partitions have no leader until all their replicas have reported where their logs end",
                    extra={"partitions": waiting, "missing_brokers": sorted(missing)},
                )
            return ControllerDecision((), None)

        self._decide_by_itself(decide)

    def _warn_of_shared_addresses(self, registration: Registration) -> None:
        """Clients of the one broker would reach the other, or neither."""
        own = set(registration.listeners.values())
        for broker in self._image.live_brokers():
            shared = own.intersection(broker.listeners.values())
            if shared and broker.broker_id != registration.broker_id:
                log.warning(
                    "two brokers advertise the same address: correct advertised.listeners of one of them",
                    extra={
                        "addresses": [f"{host}:{port}" for host, port in sorted(shared)],
                        "broker_ids": sorted([broker.broker_id, registration.broker_id]),
                    },
                )

    # Leaders

    async def _balance_leaders(self) -> None:
        """Return leadership to preferred replicas from time to time: a broker that was away leads nothing at first."""
        while True:
            await asyncio.sleep(self._rules.config.integer("leader.imbalance.check.interval.seconds"))
            if self._rules.config.boolean("auto.leader.rebalance.enable"):
                await self.balance_leaders()

    async def balance_leaders(self) -> int:
        """Let preferred replicas lead wherever they can; returns how many partitions that moved."""
        try:
            moved = await self.change(Controller.balance_leaders)
        except (Refused, StoreError) as error:
            # It is tried again at the next look; nothing waits for it.
            log.warning("leadership was not returned to preferred replicas", extra={"error": str(error)})
            return 0
        if moved:
            log.info("leadership returned to preferred replicas", extra={"partitions": moved})
        return moved

    def _decide_by_itself(self, decide: Callable[[Controller], ControllerDecision[Any]]) -> None:
        self._queue.append(_Command(decide, asyncio.get_running_loop().create_future(), is_own=True))
        self._asked.set()


def _retrieve(done: "asyncio.Future[Any]") -> None:
    if not done.cancelled():
        done.exception()


def _followed(commands: Sequence[_Command], reached: "asyncio.Future[None]") -> None:
    # The change is in the log, but this broker stopped before it saw that.
    stopped = NotControllerError("the broker stops", outcome_unknown=True) if reached.cancelled() else None
    for command in commands:
        _answer(command, stopped or command.refusal)


def _answer(command: _Command, error: Exception | None) -> None:
    if command.done.done() or command.is_own:
        return
    if error is None:
        command.done.set_result(command.reply)
    else:
        command.done.set_exception(error)
