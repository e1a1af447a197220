"""Committing how far a consumer is: in the order of the calls, one request at a time, so that what is older never
overwrites what is newer. Whatever is waiting meanwhile goes with the next request."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeAlias

from penstock.client.cluster import Cluster, Terms
from penstock.client.errors import ClientError, CommitFailedError, broker_error, unanswered
from penstock.client.groups import CommittedOffset
from penstock.client.metadata import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Versions
from penstock.protocol.schemas.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)

Offsets: TypeAlias = Mapping[TopicPartition, CommittedOffset]
Outcomes: TypeAlias = dict[TopicPartition, ClientError | None]
Callback: TypeAlias = Callable[[Offsets, BaseException | None], object]

# Whatever they are said about, they concern the whole request: another broker has to be asked, or the same one later.
COORDINATION: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
# The group is not in the generation, or not with the members, that we think.
_MOVED_ON: Final = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)


class Identity(NamedTuple):
    """Who commits; the defaults are of somebody who is no member."""

    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None


class Group(Protocol):
    """What is known about the membership that commits are made under."""

    @property
    def identity(self) -> Identity | None:
        """None: we are no member now."""
        ...

    async def refused(self, code: ErrorCode, identity: Identity) -> bool:
        """The group did not know that identity. Waits until it is settled who we are now; whether that may help."""
        ...


class Nobody:
    """A consumer whose partitions no group has given it."""

    identity: Final = Identity()

    async def refused(self, code: ErrorCode, identity: Identity) -> bool:
        return False


@dataclass(slots=True, eq=False)
class _Commit:
    offsets: Offsets
    done: "asyncio.Future[None]"


class Committer:
    """`still_ours` tells which partitions may be committed after the group has moved on."""

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
        """Raises the error of the first partition that has one. Cancelled, it is carried out all the same."""
        if offsets:
            await self._enqueue(offsets)

    def commit_soon(self, offsets: Offsets, callback: Callback) -> None:
        """The same without waiting; the callback hears how it went."""
        done = self._enqueue(offsets)
        self._callbacks.add(done)

        def tell(done: "asyncio.Future[None]") -> None:
            self._callbacks.discard(done)
            error = ClientError("the consumer was closed before") if done.cancelled() else done.exception()
            callback(offsets, error)

        done.add_done_callback(tell)

    async def drain(self) -> None:
        """Wait for all that is under way, whatever becomes of it."""
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
        """What was committed. `stable`: not, while a transaction that commits something else is open (KIP-447)."""
        asked = {
            topic: [key.partition for key in keys if key.topic == topic]
            for topic in sorted({key.topic for key in keys})
        }
        request = OffsetFetchRequest(
            group_id=self._group_id,
            topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=each) for topic, each in asked.items()],
            require_stable=stable,
        )

        def read(response: OffsetFetchResponse) -> dict[TopicPartition, CommittedOffset]:
            _check(response.error_code, f"the offsets of group {self._group_id!r}")
            found = {}
            for topic in response.topics:
                for told in topic.partitions:
                    key = TopicPartition(topic.name, told.partition_index)
                    _check(told.error_code, f"the offset of group {self._group_id!r} in {key}")
                    if told.committed_offset >= 0:
                        found[key] = CommittedOffset(
                            told.committed_offset, told.committed_leader_epoch, told.metadata or ""
                        )
            return found

        # Later versions take many groups, but every broker still speaks these; and from 10 on topics go by id.
        terms = Terms(versions=Versions(7 if stable else 1, 7), timeout_ms=timeout_ms)
        found = await self._cluster.request_to_coordinator(self._group_id, request, read, terms=terms)
        return {key: found.get(key) for key in keys}

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
                codes = await self._request(left, identity)
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

    async def _request(self, offsets: Offsets, identity: Identity) -> dict[TopicPartition, int]:
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for key, committed in offsets.items():
            topics.setdefault(key.topic, []).append(
                OffsetCommitRequestPartition(
                    partition_index=key.partition,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    committed_metadata=committed.metadata,
                )
            )
        request = OffsetCommitRequest(
            group_id=self._group_id,
            generation_id_or_member_epoch=identity.generation,
            member_id=identity.member_id,
            group_instance_id=identity.instance_id,
            topics=[OffsetCommitRequestTopic(name=name, partitions=each) for name, each in topics.items()],
        )

        def read(response: OffsetCommitResponse) -> dict[TopicPartition, int]:
            codes = {
                TopicPartition(topic.name, told.partition_index): told.error_code
                for topic in response.topics
                for told in topic.partitions
            }
            for code in codes.values():
                if code in COORDINATION:
                    raise broker_error(code, f"group {self._group_id!r}")
            return codes

        # In version 10 topics go by id.
        terms = Terms(versions=Versions(2, 9))
        return await self._cluster.request_to_coordinator(self._group_id, request, read, terms=terms)

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


def _check(code: int, about: str) -> None:
    if code:
        raise broker_error(code, about)
