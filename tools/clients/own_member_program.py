"""Hosts members of groups that use Penstock's own consumer: `python -m tools.clients.own_member_program` (its protocol:
members.py)."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from penstock import __version__
from penstock.client.consumer.consumer import Consumer
from penstock.client.errors import BrokerError, CommitFailedError
from penstock.client.metadata import TopicPartition
from penstock.machines.assignors import Assignor, Candidate
from penstock.protocol.error_codes import ErrorCode
from tools.clients.member_assignors import BY_WEIGHT, share_out
from tools.clients.member_program import AT_ONCE, METADATA_MS, POLL_MS, REBALANCE_MS, FencedError, Member, serve


class ByWeight:
    name = BY_WEIGHT

    def __init__(self, weight: int) -> None:
        self._weight = weight

    def user_data(self, owned: frozenset[tuple[str, int]], generation: int) -> bytes:
        return str(self._weight).encode()

    def assign(
        self, members: Mapping[str, Candidate], partitions: Mapping[str, int]
    ) -> dict[str, Iterable[tuple[str, int]]]:
        [(topic, count)] = partitions.items()
        weights = {member: int(candidate.user_data or b"1") for member, candidate in members.items()}
        return {
            member: [(topic, number) for number in share] for member, share in share_out(range(count), weights).items()
        }


class Penstock(Member):
    def consume(self) -> None:
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        asked = self.asked
        assignor: str | Assignor = ByWeight(asked.weight) if asked.assignor == BY_WEIGHT else asked.assignor
        settings: dict[str, Any] = {} if asked.instance is None else {"group_instance_id": asked.instance}
        consumer = Consumer(
            bootstrap_servers=asked.bootstrap,
            client_id=asked.member,
            group_id=asked.group,
            assignors=[assignor],
            session_timeout_ms=asked.session_ms,
            heartbeat_interval_ms=asked.heartbeat_ms,
            max_poll_interval_ms=REBALANCE_MS,
            metadata_max_age_ms=METADATA_MS,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=POLL_MS,
            **settings,
        )

        async def settle() -> None:
            offsets = self.to_commit()
            if not offsets:
                return
            if not self.may_commit.is_set():
                self.say(held=True)
            while not (self.may_commit.is_set() or self.is_leaving.is_set()):
                await asyncio.sleep(0.01)
            try:
                await consumer.commit({TopicPartition(asked.topic, each): offset for each, offset in offsets.items()})
            except CommitFailedError as error:
                self.was_refused(error)
            else:
                self.committed(offsets)

        async def revoked(keys: frozenset[TopicPartition]) -> None:
            await settle()
            self.revoked(key.partition for key in keys)

        consumer.subscribe(
            asked.topic,
            on_assigned=lambda keys: self.assigned(key.partition for key in keys),
            on_revoked=revoked,
            on_lost=lambda keys: self.revoked(key.partition for key in keys),
        )
        async with consumer:
            while not self.is_leaving.is_set():
                try:
                    messages = await consumer.poll(AT_ONCE, timeout_ms=POLL_MS)
                except BrokerError as error:
                    if error.code is ErrorCode.FENCED_INSTANCE_ID:
                        raise FencedError(str(error)) from error
                    raise
                for message in messages:
                    self.took(message.partition, message.offset, message.value or b"")
                await settle()


if __name__ == "__main__":
    serve(Penstock, __version__)
