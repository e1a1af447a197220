"""`Membership` makes a consumer a member of its group: it joins, computes the assignment if it is the leader, and sends
heartbeats.

One task rebalances, one sends heartbeats while the application works, one watches topics that come and change, and one
reports topics that do not exist.
Partitions are reassigned only while the application waits in a poll, so that it is done with what it was given. Eager
assignors have members give up everything before they join again; cooperative ones only what goes to another member
(KIP-429).
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from enum import Enum, auto
from typing import Final, Protocol

from penstock.client.admin.group_offsets import Identity
from penstock.client.cluster.cluster import Cluster
from penstock.client.cluster.retries import backoff_ms, may_pass
from penstock.client.errors import BrokerError, ClientError, broker_error
from penstock.client.group.missing_topics import MissingTopics
from penstock.client.group.protocol import (
    Wanted,
    make_plan,
    read_own_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from penstock.client.group.requests import GroupRequests
from penstock.client.group.topic_finder import TopicFinder
from penstock.client.metadata import TopicPartition
from penstock.client.settings import ConsumerSettings
from penstock.machines.assignors import Assignor, is_cooperative
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.groups import JoinGroupRequestProtocol, JoinGroupResponse, SyncGroupRequestAssignment

logger = logging.getLogger(__name__)

JOIN_END_MS: Final = 3_000

_NO_GENERATION: Final = -1


class State(Enum):
    OUTSIDE = auto()
    JOINING = auto()
    """From the time that a join is sent until the assignment is there."""
    INSIDE = auto()


class App(Protocol):
    """The application, as far as the group waits for it."""

    @property
    def is_polling(self) -> bool:
        """Whether it waits in a poll."""
        ...

    def signs_of_life(self) -> object:
        """A value that changes each time the application has come for more."""
        ...

    def pause_polls(self, *, wanted: bool) -> None:
        """Have polls return nothing until this is called with False."""
        ...


class Owner(Protocol):
    """The part of the consumer that reads the partitions which a member gets."""

    @property
    def wanted(self) -> Wanted | None: ...

    @property
    def owned(self) -> frozenset[TopicPartition]: ...

    @property
    def asks_the_user(self) -> bool:
        """Whether the user has to hear of new partitions before they are read."""
        ...

    async def assigned(self, keys: frozenset[TopicPartition]) -> None: ...

    async def revoked(self, keys: frozenset[TopicPartition]) -> None:
        """The partitions go to other members, which begin at the committed offsets."""
        ...

    async def lost(self, keys: frozenset[TopicPartition]) -> None:
        """The partitions may have gone to other members already."""
        ...

    def failed(self, error: BaseException) -> None:
        """Have the next poll raise the error."""
        ...

    def fenced(self, error: ClientError) -> None:
        """All partitions are lost for good, and every poll from now on has to raise the error."""
        ...


class Membership:
    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        assignors: Sequence[Assignor],
        *,
        owner: Owner,
        app: App,
    ) -> None:
        assert settings.group_id is not None
        self.rebalances = 0
        """How often the group has assigned partitions to this member."""
        self._settings = settings
        self._finder = TopicFinder(cluster, settings)
        self._missing = MissingTopics(
            f"group {settings.group_id!r}", owner.failed, raises=settings.on_missing_topic == "raise"
        )
        self._subscribed = asyncio.Event()
        self._requests = GroupRequests(cluster, settings.group_id, settings)
        self._assignors = {each.name: each for each in assignors}
        self._is_cooperative = all(map(is_cooperative, assignors))
        self._owner = owner
        self._app = app
        self._group = settings.group_id
        self._loop = asyncio.get_running_loop()
        self._state = State.OUTSIDE
        self._member_id = ""
        self._generation = _NO_GENERATION
        self._topics: frozenset[str] = frozenset()
        self._counts: dict[str, int] | None = None
        """How many partitions the topics of all members had when this member, as leader, assigned them."""
        self._was_shared_out = asyncio.Event()
        self._needs_join = asyncio.Event()
        self._is_join_due = False
        """From when a join was asked for until one is sent, which may have to wait for the application."""
        self._was_overdue = False
        self._app_came = asyncio.Event()
        self._calm = asyncio.Event()
        self._calm.set()
        self._joined = asyncio.Event()
        """Set unless a join is under way."""
        self._joined.set()
        self._in_callback = False
        self._is_stopped = False
        self._last_sign: object = None
        self._last_sign_at = self._loop.time()
        self._failures = 0
        self._tasks: list[asyncio.Task[None]] = []

    # Calls from other parts

    @property
    def identity(self) -> Identity | None:
        """None: the group does not count this consumer among its members."""
        if self._generation == _NO_GENERATION:
            return None
        return Identity(self._member_id, self._generation, self._settings.group_instance_id)

    def start(self) -> None:
        for work in (
            self._rebalance_for_ever(),
            self._beat_for_ever(),
            self._watch_for_ever(),
            self._report_missing_for_ever(),
        ):
            task = self._loop.create_task(work)
            task.add_done_callback(self._ended)
            self._tasks.append(task)
        self.rejoin()

    def rejoin(self) -> None:
        """The subscription has changed, or the group has."""
        self._is_join_due = True
        self._needs_join.set()
        self._subscribed.set()

    def app_came(self) -> None:
        """The application is in a poll now."""
        self._app_came.set()

    async def until_calm(self) -> None:
        """Wait while a poll must not return anything."""
        await self._calm.wait()

    async def refused(self, code: ErrorCode, identity: Identity) -> bool:
        """A commit was refused: see `committer.Group`. Waiting helps only while a cooperative group rebalances: this
        member keeps most of its partitions, and has them in the next generation."""
        self._heard(code, identity)
        if self._in_callback or self._is_stopped or not self._is_cooperative:
            return False
        if self._joined.is_set():
            # The plan may have come just now.
            await asyncio.sleep(backoff_ms(1) / 1000)
        await self._joined.wait()
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            return self.identity is not None
        return self.identity not in (None, identity)

    async def stop(self) -> None:
        """Stop, though the group does not know it yet. A member that has partitions and is joining cannot commit before
        the join is over: that is waited for, for a moment."""
        if self._state is State.JOINING and self._owner.owned:
            with suppress(TimeoutError):
                async with asyncio.timeout(JOIN_END_MS / 1000):
                    await self._joined.wait()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._is_stopped = True
        self._joined.set()

    async def leave(self, reason: str) -> None:
        """Leave the group, unless this member will come back under its name; a failure does not matter."""
        member_id, self._member_id, self._generation = self._member_id, "", _NO_GENERATION
        self._enter(State.OUTSIDE)
        if member_id and self._settings.group_instance_id is None:
            await self._requests.leave(member_id, reason)

    # Rebalancing

    async def _rebalance_for_ever(self) -> None:
        while True:
            await self._needs_join.wait()
            self._needs_join.clear()
            try:
                if await self._rebalance():
                    self._failures = 0
                    continue
                # The group is rebalancing, or has dropped this member. A coordinator that says so repeatedly is not
                # kept busy by that.
                self._failures += 1
            except ClientError as error:
                self._enter(State.OUTSIDE if self._generation == _NO_GENERATION else State.INSIDE)
                self._failures += 1
                if isinstance(error, BrokerError) and error.code is ErrorCode.FENCED_INSTANCE_ID:
                    self._fenced(error)
                elif not may_pass(error, self._failures, repeatable=True):
                    self._owner.failed(error)
            await asyncio.sleep(backoff_ms(self._failures) / 1000)
            self._needs_join.set()

    async def _rebalance(self) -> bool:
        """False: it has to be tried again from the start."""
        wanted = self._owner.wanted
        if wanted is None:
            # We were fenced.
            return True
        self._topics = await self._finder.names(wanted)
        await self._give_up()
        joined = await self._join()
        if joined is None:
            return False
        assigned = await self._sync(joined)
        if assigned is None:
            return False
        self._enter(State.INSIDE)
        self._was_shared_out.set()
        self.rebalances += 1
        await self._take_over(assigned)
        return True

    def _enter(self, state: State) -> None:
        self._state = state
        if state is State.JOINING:
            self._joined.clear()
        else:
            self._joined.set()

    async def _give_up(self) -> None:
        """Before a join: give up the partitions that may not be kept until it is over."""

        async def give_up() -> None:
            # The group may have dropped this member while it waited for the application.
            owned = self._owner.owned
            if self._generation == _NO_GENERATION:
                await self._owner.lost(owned)
            elif not self._is_cooperative:
                await self._owner.revoked(owned)
            elif gone := frozenset(key for key in owned if key.topic not in self._topics):
                await self._owner.revoked(gone)

        owned = self._owner.owned
        if self._was_overdue or (owned and (not self._is_cooperative or self._generation == _NO_GENERATION)):
            await self._with_app(give_up)
            self._was_overdue = False
        elif any(key.topic not in self._topics for key in owned):
            await self._with_app(give_up)

    async def _take_over(self, assigned: frozenset[TopicPartition]) -> None:
        """After a join: give up partitions that other members get, and begin with new ones. If some were given up the
        group assigns once more, as no member has those now."""
        generation = self._generation
        owned = self._owner.owned
        gone, added = owned - assigned, assigned - owned

        async def take_over() -> None:
            if self._generation != generation:
                # The group has dropped this member while it waited for the application: all partitions are lost.
                return
            if gone:
                await self._owner.revoked(gone)
            await self._owner.assigned(added)

        if gone:
            self.rejoin()
        if gone or self._owner.asks_the_user:
            await self._with_app(take_over)
        else:
            await take_over()

    async def _with_app(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do something while the application holds no messages."""
        self._app_came.clear()
        self._calm.clear()
        self._app.pause_polls(wanted=True)
        try:
            if not self._app.is_polling:
                await self._app_came.wait()
            self._in_callback = True
            await work()
        finally:
            self._in_callback = False
            self._app.pause_polls(wanted=False)
            self._calm.set()

    async def _join(self) -> JoinGroupResponse | None:
        """None: it has to be tried again from the start."""
        self._enter(State.JOINING)
        self._is_join_due = False
        settings = self._settings
        owned = self._owner.owned if self._is_cooperative else frozenset()
        protocols = [
            JoinGroupRequestProtocol(
                name=assignor.name,
                metadata=write_subscription(
                    assignor,
                    self._topics,
                    owned=owned,
                    generation=self._generation,
                    rack=settings.client_rack,
                ),
            )
            for assignor in self._assignors.values()
        ]
        response = await self._requests.join(self._member_id, protocols)
        match response.error_code:
            case ErrorCode.NONE:
                self._member_id, self._generation = response.member_id, response.generation_id
                return response
            case ErrorCode.MEMBER_ID_REQUIRED:
                had_id, self._member_id = bool(self._member_id), response.member_id
                # Once it is there it is not asked for again.
                return None if had_id else await self._join()
            case ErrorCode.REBALANCE_IN_PROGRESS:
                return None
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.ILLEGAL_GENERATION as code:
                self._forgotten(keeps_id=code == ErrorCode.ILLEGAL_GENERATION)
                return None
            case code:
                raise broker_error(code, f"group {self._group!r}")

    async def _sync(self, joined: JoinGroupResponse) -> frozenset[TopicPartition] | None:
        """What the leader assigns to this member; None: it has to be tried again from the start."""
        is_leader = joined.leader == joined.member_id
        self._counts = None
        plan = await self._share_out(joined) if is_leader else []
        identity = Identity(self._member_id, self._generation, self._settings.group_instance_id)
        response = await self._requests.sync(identity, joined.protocol_name, plan)
        match response.error_code:
            case ErrorCode.NONE:
                return read_own_assignment(response.assignment)
            case ErrorCode.REBALANCE_IN_PROGRESS:
                return None
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.ILLEGAL_GENERATION as code:
                self._forgotten(keeps_id=code == ErrorCode.ILLEGAL_GENERATION)
                return None
            case code:
                raise broker_error(code, f"group {self._group!r}")

    async def _share_out(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """The leader's work."""
        members = {each.member_id: read_subscription(each.metadata, each.group_instance_id) for each in joined.members}
        topics = frozenset().union(*(each.topics for each in members.values()))
        self._counts = await self._finder.counts(topics)
        if joined.skip_assignment:
            return []
        assignor = self._assignors.get(joined.protocol_name or "")
        if assignor is None:
            raise ClientError(
                f"group {self._group!r} has chosen assignor {joined.protocol_name!r}, which we do not know"
            )
        try:
            plan = make_plan(assignor, members, self._counts)
        except Exception as error:
            raise ClientError(f"assignor {assignor.name!r} could not share out the partitions: {error}") from error
        return [
            SyncGroupRequestAssignment(member_id=member, assignment=write_assignment(plan.get(member, ())))
            for member in members
        ]

    # Signs of life

    async def _beat_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._next_beat_seconds())
            if self._state is not State.INSIDE:
                continue
            if self._is_overdue():
                logger.warning(
                    "group %r gets its partitions back: the application did not poll for more than %d ms "
                    "(max.poll.interval.ms)",
                    self._group,
                    self._settings.max_poll_interval_ms,
                )
                self._was_overdue = True
                await self.leave("the application did not poll for longer than max.poll.interval.ms")
                self.rejoin()
                continue
            await self._beat()

    def _next_beat_seconds(self) -> float:
        left = self._last_sign_at + self._settings.max_poll_interval_ms / 1000 - self._loop.time()
        interval = self._settings.heartbeat_interval_ms / 1000
        return min(interval, left + 0.001) if left > 0 else interval

    def _is_overdue(self) -> bool:
        now = self._loop.time()
        sign = self._app.signs_of_life()
        if self._app.is_polling or sign != self._last_sign:
            self._last_sign, self._last_sign_at = sign, now
        return now - self._last_sign_at > self._settings.max_poll_interval_ms / 1000

    async def _beat(self) -> None:
        identity = self.identity
        if identity is None:
            return
        try:
            code = await self._requests.beat(identity)
        except ClientError as error:
            logger.warning("no heartbeat of group %r was answered: %s", self._group, error)
            return
        self._heard(code, identity)

    def _heard(self, code: int, identity: Identity) -> None:
        """Act on the coordinator's answer about the identity that was asked with."""
        if identity != self.identity or self._state is not State.INSIDE:
            return
        match code:
            case ErrorCode.NONE:
                pass
            case ErrorCode.REBALANCE_IN_PROGRESS:
                # Heartbeats say so again and again until the join is sent; each of them is answered by that one.
                if not self._is_join_due:
                    self.rejoin()
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.ILLEGAL_GENERATION:
                self._forgotten(keeps_id=code == ErrorCode.ILLEGAL_GENERATION)
                self._enter(State.OUTSIDE)
                self.rejoin()
            case ErrorCode.FENCED_INSTANCE_ID:
                self._fenced(broker_error(code, f"group {self._group!r}"))
            case _:
                self._owner.failed(broker_error(code, f"group {self._group!r}"))

    def _fenced(self, error: BrokerError) -> None:
        """Another consumer has this member's name now, and its partitions; this one does not come back."""
        self._forgotten(keeps_id=False)
        self._enter(State.OUTSIDE)
        self._owner.fenced(error)

    def _forgotten(self, *, keeps_id: bool) -> None:
        self._generation = _NO_GENERATION
        if not keeps_id:
            self._member_id = ""

    # Topics that come and change

    async def _watch_for_ever(self) -> None:
        while True:
            self._was_shared_out.clear()
            is_complete = self._counts is None or len(self._counts) >= len(self._topics)
            try:
                async with asyncio.timeout(self._finder.wait_seconds(is_complete=is_complete)):
                    await self._was_shared_out.wait()
                continue
            except TimeoutError:
                pass
            wanted = self._owner.wanted
            if self._state is not State.INSIDE or wanted is None:
                continue
            try:
                if await self._have_topics_changed(wanted):
                    self.rejoin()
            except ClientError as error:
                logger.warning("could not look for new topics of group %r: %s", self._group, error)

    async def _have_topics_changed(self, wanted: Wanted) -> bool:
        if isinstance(wanted, re.Pattern) and await self._finder.names(wanted) != self._topics:
            return True
        counts = self._counts
        return counts is not None and await self._finder.counts(counts.keys() | self._topics) != counts

    async def _report_missing_for_ever(self) -> None:
        """Look for the topics whenever others are wanted, until each of them is there or was reported: a group finds by
        itself those that are created later."""
        settled: Wanted | None = None
        while True:
            self._subscribed.clear()
            wanted = self._owner.wanted
            if isinstance(wanted, frozenset) and wanted != settled and await self._report_missing(wanted):
                settled = wanted
            is_settled = not isinstance(wanted, frozenset) or wanted == settled
            try:
                async with asyncio.timeout(None if is_settled else self._finder.wait_seconds(is_complete=False)):
                    await self._subscribed.wait()
            except TimeoutError:
                pass

    async def _report_missing(self, wanted: frozenset[str]) -> bool:
        """Whether nothing is left to be reported about these topics."""
        try:
            found = await self._finder.topics(wanted)
        except ClientError:
            return False
        is_settled = True
        for name, topic in found.items():
            if isinstance(topic, BrokerError):
                is_settled = self._missing.report(name, topic) and not self._missing.raises and is_settled
            elif isinstance(topic, ClientError):
                # What keeps the client from brokers at all keeps it from joining, which reports it.
                is_settled = False
        return is_settled

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._owner.failed(error)
