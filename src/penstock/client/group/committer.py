"""The committer commits offsets in the order of the calls, one request at a time, so that an older offset never
overwrites a newer one. Commits that wait meanwhile go together with the next request."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from penstock.client.admin.group_offsets import CommittedOffset, Identity, Offsets, commit_as, fetch_offsets
from penstock.client.cluster.cluster import Cluster
from penstock.client.errors import ClientError, CommitFailedError, broker_error, unanswered
from penstock.client.metadata import TopicPartition
from penstock.protocol.error_codes import ErrorCode

Outcomes: TypeAlias = dict[TopicPartition, ClientError | None]
Callback: TypeAlias = Callable[[Offsets, BaseException | None], object]

# The group is in another generation, or has other members, than this member thinks.
_MOVED_ON: Final = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)


class Group(Protocol):
    """What is known about the membership that commits are made under."""

    @property
    def identity(self) -> Identity | None:
        """None: this consumer is not a member now."""
        ...

    async def refused(self, code: ErrorCode, identity: Identity) -> bool:
        """The group did not know that identity. Waits until the membership is settled; returns whether another try may
        help."""
        ...


class NoMembership:
    """A consumer whose partitions were not assigned by a group."""

    identity: Final = Identity()

    async def refused(self, code: ErrorCode, identity: Identity) -> bool:
        return False


@dataclass(slots=True, eq=False)
class _Commit:
    offsets: Offsets
    done: "asyncio.Future[None]"


class Committer:
    """`still_ours` says which partitions may be committed after the group has moved on."""

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        *,
        group: Group,
        still_ours: Callable[[TopicPartition], bool],
    ) -> None:
        self.group = group
        self._cluster = cluster
        self._group_id = group_id
        self._still_ours = still_ours
        self._waiting: list[_Commit] = []
        self._sending: asyncio.Task[None] | None = None
        self._callbacks: set[asyncio.Future[None]] = set()

    async def commit(self, offsets: Offsets) -> None:
        """Raises the error of the first partition that has one. A cancelled call is still carried out."""
        if offsets:
            await self._enqueue(offsets)

    def commit_soon(self, offsets: Offsets, callback: Callback) -> None:
        """As `commit`, without waiting; the callback gets the outcome."""
        done = self._enqueue(offsets)
        self._callbacks.add(done)

        def tell(done: "asyncio.Future[None]") -> None:
            self._callbacks.discard(done)
            error = ClientError("the consumer was closed before") if done.cancelled() else done.exception()
            callback(offsets, error)

        done.add_done_callback(tell)

    async def drain(self) -> None:
        """Wait until all commits under way have ended, with or without success."""
        while self._sending is not None:
            await asyncio.wait([self._sending])

    async def close(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending])
        for each in self._waiting:
            each.done.cancel()
        self._waiting.clear()

    async def fetch(
        self, keys: Collection[TopicPartition], *, stable: bool = False, timeout_ms: int | None = None
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """The offsets that the group has committed. With `stable` not while a transaction that commits others is open
        (KIP-447)."""
        return await fetch_offsets(self._cluster, self._group_id, keys, stable=stable, timeout_ms=timeout_ms)

    def _enqueue(self, offsets: Offsets) -> "asyncio.Future[None]":
        done = asyncio.get_running_loop().create_future()
        self._waiting.append(_Commit(offsets, done))
        if self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send_all())
        return done

    async def _send_all(self) -> None:
        commits: list[_Commit] = []
        try:
            while self._waiting:
                commits, self._waiting = self._waiting, []
                # What was called later counts.
                merged: dict[TopicPartition, CommittedOffset] = {}
                for each in commits:
                    merged.update(each.offsets)
                outcomes = await self._send(merged)
                for each in commits:
                    _tell(each, outcomes)
        except asyncio.CancelledError:
            for each in commits:
                each.done.cancel()
            raise
        except Exception as error:
            for each in commits:
                if not each.done.done():
                    each.done.set_exception(error)
        finally:
            self._sending = None

    async def _send(self, offsets: Offsets) -> Outcomes:
        outcomes: Outcomes = {}
        left = dict(offsets)
        while left:
            identity = self.group.identity
            if identity is None:
                return outcomes | {key: self._outcome(key, ErrorCode.UNKNOWN_MEMBER_ID) for key in left}
            try:
                codes = await commit_as(self._cluster, self._group_id, left, identity)
            except ClientError as error:
                return outcomes | dict.fromkeys(left, error)
            refusal = next((code for code in codes.values() if code in _MOVED_ON), None)
            outcomes |= {key: self._outcome(key, codes.get(key)) for key in left}
            if refusal is None or not await self.group.refused(ErrorCode(refusal), identity):
                break
            left = {
                key: offset for key, offset in left.items() if codes.get(key) in _MOVED_ON and self._still_ours(key)
            }
        return outcomes

    def _outcome(self, key: TopicPartition, code: int | None) -> ClientError | None:
        about = f"the offset of group {self._group_id!r} in {key}"
        if code is None:
            return unanswered(about)
        if code in _MOVED_ON:
            return CommitFailedError(
                f"{about} was not committed ({ErrorCode(code).name}): the group has given the partition away, or is "
                "about to. Messages since the last commit will come again; if that is because they take long, raise "
                "max.poll.interval.ms or lower max.poll.records"
            )
        return broker_error(code, about) if code else None


def _tell(commit: _Commit, outcomes: Outcomes) -> None:
    if commit.done.done():
        return
    errors = [error for key in commit.offsets if (error := outcomes[key]) is not None]
    if errors:
        commit.done.set_exception(errors[0])
    else:
        commit.done.set_result(None)
