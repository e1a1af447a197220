"""Hosts members of groups that use the Python clients: `python -m tools.clients.member_program CLIENT` (its protocol:
members.py)."""

import asyncio
import json
import sys
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from tools.clients.member_assignors import BY_WEIGHT, ByWeightForAiokafka, ByWeightForKafkaPython
from tools.clients.python_program import version_of

POLL_MS = 100
AT_ONCE = 200
METADATA_MS = 1000
REBALANCE_MS = 30_000
REQUEST_MS = 10_000


@dataclass(slots=True, frozen=True)
class Join:
    member: str
    bootstrap: str
    group: str
    topic: str
    assignor: str
    weight: int
    instance: str | None
    session_ms: int

    @property
    def heartbeat_ms(self) -> int:
        return min(self.session_ms // 4, 300)


class KickedOutError(Exception):
    """The broker does not take commits of this member any more, or not for these partitions."""


class FencedError(Exception):
    """Another member has its instance id now, and it has to go."""


class NotNowError(Exception):
    """The commit has to be tried again, after the next poll."""


class Member(ABC):
    """A consumer that says what it processes and then commits it, in a thread of its own. The client's subclass calls
    `took` for every record, and `assigned`, `revoked` and `lost` as the client reports them."""

    def __init__(self, asked: Join) -> None:
        self.asked = asked
        self.may_commit = threading.Event()
        self.may_commit.set()
        self.is_leaving = threading.Event()
        self._owned: set[int] = set()
        self._unsaid: list[tuple[int, int, str]] = []
        self._uncommitted: dict[int, int] = {}
        threading.Thread(target=self._run, daemon=True).start()

    @abstractmethod
    def consume(self) -> None:
        """Until it shall leave."""

    def say(self, **words: Any) -> None:
        say({"member": self.asked.member, **words})

    def took(self, partition: int, offset: int, value: bytes) -> None:
        self._unsaid.append((partition, offset, value.decode()))
        self._uncommitted[partition] = offset + 1

    def owns(self, partition: int) -> bool:
        return partition in self._owned

    def assigned(self, partitions: Iterable[int]) -> None:
        self._owned |= set(partitions)
        self.say(owns=sorted(self._owned))

    def revoked(self, partitions: Iterable[int]) -> None:
        """The next member to have them begins after what is committed."""
        for partition in partitions:
            self._owned.discard(partition)
            self._uncommitted.pop(partition, None)
        self.say(owns=sorted(self._owned))

    def to_commit(self) -> dict[int, int]:
        """What is processed by that, partition by partition."""
        if self._unsaid:
            self.say(processed=self._unsaid)
            self._unsaid = []
        return self._uncommitted.copy()

    def committed(self, offsets: Mapping[int, int]) -> None:
        self._uncommitted = {}
        self.say(committed=offsets)

    def was_refused(self, reason: object) -> None:
        self._uncommitted = {}
        self.say(refused=str(reason))

    def settle(self, commit: Callable[[dict[int, int]], None]) -> None:
        """Say what was processed, and commit it if that is possible now."""
        offsets = self.to_commit()
        if not offsets:
            return
        if not self.may_commit.is_set():
            self.say(held=True)
        while not self.may_commit.wait(0.01) and not self.is_leaving.is_set():
            pass
        try:
            commit(offsets)
        except NotNowError:
            pass
        except KickedOutError as error:
            self.was_refused(error)
        else:
            self.committed(offsets)

    def _run(self) -> None:
        try:
            self.consume()
        except Exception:
            self.say(failed=traceback.format_exc())
        else:
            self.say(left=True)


class ConfluentKafka(Member):
    def consume(self) -> None:
        import confluent_kafka
        from confluent_kafka import KafkaError, KafkaException, TopicPartition

        asked = self.asked
        kicked_out = (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION)
        fenced = (KafkaError.FENCED_INSTANCE_ID, KafkaError._FATAL)
        is_cooperative = asked.assignor == "cooperative-sticky"
        settings: dict[str, Any] = {
            "bootstrap.servers": asked.bootstrap,
            "client.id": asked.member,
            "group.id": asked.group,
            "partition.assignment.strategy": asked.assignor,
            "session.timeout.ms": asked.session_ms,
            "heartbeat.interval.ms": asked.heartbeat_ms,
            "max.poll.interval.ms": REBALANCE_MS,
            "topic.metadata.refresh.interval.ms": METADATA_MS,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": POLL_MS,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
        if asked.instance is not None:
            settings["group.instance.id"] = asked.instance
        consumer = confluent_kafka.Consumer(settings)

        def commit(offsets: dict[int, int]) -> None:
            try:
                places = [TopicPartition(asked.topic, partition, offset) for partition, offset in offsets.items()]
                for place in consumer.commit(offsets=places, asynchronous=False) or ():
                    if place.error is not None:
                        raise KafkaException(place.error)
            except KafkaException as error:
                code, name = error.args[0].code(), error.args[0].name()
                if code in fenced:
                    raise FencedError(name) from error
                # It reads on while it rebalances cooperatively, and its commit may cross with the new generation.
                if code in kicked_out and not (is_cooperative and code == KafkaError.ILLEGAL_GENERATION):
                    raise KickedOutError(name) from error
                raise NotNowError from error

        def revoked(_: object, places: list[TopicPartition]) -> None:
            self.settle(commit)
            self.revoked(place.partition for place in places)

        consumer.subscribe(
            [asked.topic],
            on_assign=lambda _, places: self.assigned(place.partition for place in places),
            on_revoke=revoked,
            on_lost=revoked,
        )
        try:
            while not self.is_leaving.is_set():
                timeout, count = POLL_MS / 1000, 0
                while count < AT_ONCE and (message := consumer.poll(timeout)) is not None:
                    timeout, count = 0, count + 1
                    error = message.error()
                    if error is None:
                        self.took(message.partition() or 0, message.offset() or 0, message.value() or b"")
                    elif error.code() in fenced:
                        raise FencedError(error.str())
                self.settle(commit)
        finally:
            consumer.close()


class KafkaPython(Member):
    def consume(self) -> None:
        import kafka
        from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
        from kafka.coordinator.assignors.range import RangePartitionAssignor
        from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
        from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
        from kafka.errors import CommitFailedError, FencedInstanceIdError, KafkaConnectionError, KafkaError

        asked = self.asked
        assignors = {
            "range": RangePartitionAssignor,
            "roundrobin": RoundRobinPartitionAssignor,
            "sticky": StickyPartitionAssignor,
            "cooperative-sticky": CooperativeStickyAssignor,
            BY_WEIGHT: partial(ByWeightForKafkaPython, asked.weight),
        }
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=asked.bootstrap,
            client_id=asked.member,
            group_id=asked.group,
            group_instance_id=asked.instance,
            partition_assignment_strategy=[assignors[asked.assignor]],
            session_timeout_ms=asked.session_ms,
            heartbeat_interval_ms=asked.heartbeat_ms,
            max_poll_interval_ms=REBALANCE_MS,
            request_timeout_ms=REBALANCE_MS + REQUEST_MS,
            metadata_max_age_ms=METADATA_MS,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=POLL_MS,
            reconnect_backoff_max_ms=500,
        )

        def places(offsets: dict[int, int]) -> dict[Any, Any]:
            return {
                kafka.TopicPartition(asked.topic, partition): kafka.OffsetAndMetadata(offset, "", -1)
                for partition, offset in offsets.items()
            }

        def commit(offsets: dict[int, int]) -> None:
            try:
                consumer.commit(places(offsets), timeout_ms=REQUEST_MS)
            except FencedInstanceIdError as error:
                raise FencedError from error
            except CommitFailedError as error:
                raise KickedOutError(repr(error)) from error
            except KafkaError as error:
                raise NotNowError from error

        member = self

        class Listener(kafka.AsyncConsumerRebalanceListener):  # type: ignore[misc]
            async def on_partitions_assigned(self, assigned: Any) -> None:
                member.assigned(place.partition for place in assigned)

            async def on_partitions_revoked(self, revoked: Any) -> None:
                if offsets := member.to_commit():
                    try:
                        await consumer.commit_async(places(offsets))
                        member.committed(offsets)
                    except KafkaError as error:
                        member.was_refused(repr(error))
                member.revoked(place.partition for place in revoked)

            async def on_partitions_lost(self, lost: Any) -> None:
                member.revoked(place.partition for place in lost)

        consumer.subscribe([asked.topic], listener=Listener())
        try:
            while not self.is_leaving.is_set():
                try:
                    # If a poll ends in the midst of a join, kafka-python 3.0 sometimes never takes what it is assigned.
                    polled = consumer.poll(timeout_ms=10 * POLL_MS, max_records=AT_ONCE)
                except KafkaConnectionError:
                    # The broker is away for a while.
                    continue
                for record in (record for records in polled.values() for record in records):
                    self.took(record.partition, record.offset, record.value)
                self.settle(commit)
        finally:
            consumer.close()


class Aiokafka(Member):
    def consume(self) -> None:
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        import aiokafka
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor
        from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
        from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
        from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError

        asked = self.asked
        assignors = {
            "range": RangePartitionAssignor,
            "roundrobin": RoundRobinPartitionAssignor,
            "sticky": StickyPartitionAssignor,
            BY_WEIGHT: ByWeightForAiokafka(asked.weight),
        }
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=asked.bootstrap,
            client_id=asked.member,
            group_id=asked.group,
            group_instance_id=asked.instance,
            partition_assignment_strategy=[assignors[asked.assignor]],
            session_timeout_ms=asked.session_ms,
            heartbeat_interval_ms=asked.heartbeat_ms,
            rebalance_timeout_ms=REBALANCE_MS,
            max_poll_interval_ms=REBALANCE_MS,
            request_timeout_ms=REQUEST_MS,
            metadata_max_age_ms=METADATA_MS,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=POLL_MS,
        )
        # It rebalances by the side: not between a record and its commit, and what was polled may be others' after it.
        processing = asyncio.Lock()

        async def settle() -> None:
            offsets = self.to_commit()
            if not offsets:
                return
            if not self.may_commit.is_set():
                self.say(held=True)
            while not (self.may_commit.is_set() or self.is_leaving.is_set()):
                await asyncio.sleep(0.01)
            places = {aiokafka.TopicPartition(asked.topic, partition): offset for partition, offset in offsets.items()}
            try:
                await consumer.commit(places)
            except (CommitFailedError, IllegalStateError) as error:
                self.was_refused(repr(error.__cause__ or error))
            except KafkaError:
                pass
            else:
                self.committed(offsets)

        member = self

        class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_assigned(self, assigned: Any) -> None:
                member.assigned(place.partition for place in assigned)

            async def on_partitions_revoked(self, revoked: Any) -> None:
                async with processing:
                    await settle()
                    member.revoked(place.partition for place in revoked)

        consumer.subscribe([asked.topic], listener=Listener())
        await consumer.start()
        try:
            while not self.is_leaving.is_set():
                polled = await consumer.getmany(timeout_ms=POLL_MS, max_records=AT_ONCE)
                async with processing:
                    for record in (record for records in polled.values() for record in records):
                        if self.owns(record.partition):
                            self.took(record.partition, record.offset, record.value)
                    await settle()
        finally:
            await consumer.stop()


CLIENTS: dict[str, type[Member]] = {
    "confluent-kafka": ConfluentKafka,
    "kafka-python": KafkaPython,
    "aiokafka": Aiokafka,
}
_speaking = threading.Lock()


def say(words: dict[str, Any]) -> None:
    with _speaking:
        print(json.dumps(words), flush=True)


def main(client: str) -> None:
    serve(CLIENTS[client], version_of(client))


def serve(kind: type[Member], version: str) -> None:
    """Take requests until there are no more."""
    members: dict[str, Member] = {}
    say({"version": version})
    for line in sys.stdin:
        asked: dict[str, Any] = json.loads(line)
        name = asked["member"]
        match asked.pop("verb"):
            case "join":
                members[name] = kind(Join(**asked))
            case "hold":
                members[name].may_commit.clear()
            case "release":
                members[name].may_commit.set()
            case "leave":
                members[name].is_leaving.set()


if __name__ == "__main__":
    main(*sys.argv[1:])
