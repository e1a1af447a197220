"""An idempotent producer as clients have it: five requests in flight, and after a lost connection all that is
unanswered again, in order and byte for byte."""

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.transactions import InitProducerIdRequest
from penstock.protocol.session import ClientSession
from tests.broker.harness import PRODUCE_VERSION, Client, batch, produce_request, produced, records_of

IN_FLIGHT: Final = 5
BACKOFF_SECONDS: Final = 0.01


@dataclass(slots=True, frozen=True)
class Sent:
    """A batch, and where the broker says that it lies."""

    partition: int
    values: tuple[bytes, ...]
    records: bytearray
    base_offset: int = -1


class IdempotentProducer:
    """`acknowledged` is what it was told, in the order of the replies."""

    def __init__(self, address: tuple[str, int], topic: str, *, acks: int = -1) -> None:
        self.acknowledged: list[Sent] = []
        self.sent_again = 0
        self.stops_when_refused = False
        """Whether it gives up when nobody listens, and does not wait until somebody does."""
        self._address = address
        self._topic = topic
        self._acks = acks
        self._sequences: dict[int, int] = {}

    async def send(self, messages: Iterable[tuple[int, tuple[bytes, ...]]]) -> None:
        """Each a partition and the values of one batch. Returns when all are acknowledged, or when it gives up."""
        producer_id, epoch = await self._begin()
        waiting = iter(messages)
        unanswered: deque[Sent] = deque()
        is_at_end = False
        while not is_at_end or unanswered:
            try:
                client = await connect(self._address)
            except ConnectionRefusedError:
                if self.stops_when_refused:
                    return
                await asyncio.sleep(BACKOFF_SECONDS)
                continue
            except ConnectionError:
                continue
            try:
                self.sent_again += len(unanswered)
                for each in unanswered:
                    self._transmit(client, each)
                while not is_at_end or unanswered:
                    while not is_at_end and len(unanswered) < IN_FLIGHT:
                        following = next(waiting, None)
                        if following is None:
                            is_at_end = True
                        else:
                            unanswered.append(self._make(following, producer_id, epoch))
                            self._transmit(client, unanswered[-1])
                    if unanswered:
                        response = produced(await client.reply())
                        if response.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                            # The broker is about to be gone; whatever it has, it does not vouch for it.
                            await asyncio.sleep(BACKOFF_SECONDS)
                            break
                        assert response.error_code == ErrorCode.NONE, response
                        first = unanswered.popleft()
                        self.acknowledged.append(
                            Sent(first.partition, first.values, first.records, response.base_offset)
                        )
            except ConnectionError:
                pass
            finally:
                client.close()

    async def _begin(self) -> tuple[int, int]:
        while True:
            try:
                client = await connect(self._address)
                try:
                    response = await client.ask(
                        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1), 4
                    )
                finally:
                    client.close()
            except ConnectionRefusedError:
                await asyncio.sleep(BACKOFF_SECONDS)
                continue
            except ConnectionError:
                continue
            assert response.error_code == ErrorCode.NONE, response
            return response.producer_id, response.producer_epoch

    def _make(self, message: tuple[int, tuple[bytes, ...]], producer_id: int, epoch: int) -> Sent:
        partition, values = message
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + len(values)
        return Sent(partition, values, batch(*values, timestamp=now_ms(), producer=(producer_id, epoch, sequence)))

    def _transmit(self, client: Client, each: Sent) -> None:
        request = produce_request(self._topic, each.records, partition=each.partition, acks=self._acks)
        client.send(request, PRODUCE_VERSION)


async def connect(address: tuple[str, int]) -> Client:
    """Unlike the harness's own way, it leaves no socket behind where nobody listens."""
    reader, writer = await asyncio.open_connection(*address)
    return Client(reader, writer, ClientSession("test"))


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def read_all(
    address: tuple[str, int], topic: str, partitions: int, *, starts: Sequence[int] | None = None
) -> list[list[bytes | None]]:
    """The values of every partition in order; their offsets are dense, from 0 or the partition's start on."""
    client = await connect(address)
    try:
        return [
            await _read(client, topic, partition, start) for partition, start in enumerate(starts or [0] * partitions)
        ]
    finally:
        client.close()


async def _read(client: Client, topic: str, partition: int, start: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    while True:
        end = start + len(found)
        data = await client.fetch(topic, end, partition=partition)
        assert data.error_code == ErrorCode.NONE, ErrorCode(data.error_code).name
        # A batch comes whole, though it may begin before the offset that was asked for.
        fresh = [record for record in records_of(data) if record.offset >= end]
        if not fresh:
            return found
        assert [record.offset for record in fresh] == list(range(end, end + len(fresh)))
        found += [record.value for record in fresh]
