"""Keys that are given new values all the time, somebody who reads along, and what must be true of what is read."""

import asyncio
import random
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from penstock.protocol.batch import split
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.records import NewRecord, build, iterate
from penstock.protocol.schemas.transactions import InitProducerIdRequest
from tests.broker.harness import PRODUCE_VERSION, Client, produce_request, produced
from tests.system.producing import BACKOFF_SECONDS, IN_FLIGHT, connect, now_ms

BATCH: Final = 500
PADDING: Final = b"." * 80
# What was compacted away is known to have been there, though not any more where.
_SAFE: Final = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)


class Updates:
    """An idempotent producer that gives random keys ever higher numbers as values. `acknowledged` has, for each key,
    the last one that it was told is safe. It goes on when the broker comes back; what was unanswered it sends again.
    """

    def __init__(self, address: tuple[str, int], topic: str, *, keys: int, seed: int) -> None:
        self.acknowledged: dict[bytes, int] = {}
        self.count = 0
        self._address = address
        self._topic = topic
        self._keys = [b"key-%05d" % number for number in range(keys)]
        self._rng = random.Random(seed)
        self._number = 0
        self._producer = -1, -1

    async def send(self, count: int) -> None:
        """Returns when so many more are acknowledged."""
        to_make = count // BATCH
        unanswered: deque[tuple[dict[bytes, int], bytes]] = deque()
        while to_make or unanswered:
            try:
                client = await connect(self._address)
            except OSError:
                await asyncio.sleep(BACKOFF_SECONDS)
                continue
            try:
                if self._producer[0] < 0:
                    self._producer = await begin(client)
                for _, records in unanswered:
                    client.send(produce_request(self._topic, records), PRODUCE_VERSION)
                while to_make or unanswered:
                    while to_make and len(unanswered) < IN_FLIGHT:
                        unanswered.append(self._make())
                        to_make -= 1
                        client.send(produce_request(self._topic, unanswered[-1][1]), PRODUCE_VERSION)
                    answer = produced(await client.reply())
                    assert answer.error_code in _SAFE, answer
                    self.acknowledged |= unanswered.popleft()[0]
                    self.count += BATCH
            except ConnectionError:
                pass
            finally:
                client.close()

    def _make(self) -> tuple[dict[bytes, int], bytes]:
        keys = self._rng.choices(self._keys, k=BATCH)
        first, self._number = self._number, self._number + BATCH
        time_ms = now_ms()
        records = [
            NewRecord(b"%d" % number + PADDING, key=key, timestamp=time_ms) for number, key in enumerate(keys, first)
        ]
        producer_id, epoch = self._producer
        made = build(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=first)
        return dict(zip(keys, range(first, first + BATCH), strict=True)), bytes(made)


async def begin(client: Client) -> tuple[int, int]:
    response = await client.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1), 4)
    assert response.error_code == ErrorCode.NONE, response
    return response.producer_id, response.producer_epoch


@dataclass(slots=True)
class Reader:
    """Reads a partition from its beginning, as a client does, and holds against it what no reader may ever see."""

    address: tuple[str, int]
    topic: str
    offset: int = 0
    records: int = 0
    latest: dict[bytes, int] = field(default_factory=dict)
    last_offset: int = -1

    async def follow(self, up_to: dict[bytes, int]) -> None:
        """Until it has seen these values, or newer ones."""
        client = await connect(self.address)
        try:
            while not all(self.latest.get(key, -1) >= number for key, number in up_to.items()):
                await self.read_once(client)
        finally:
            client.close()

    async def read_to_end(self) -> None:
        client = await connect(self.address)
        try:
            while await self.read_once(client):
                pass
        finally:
            client.close()

    async def read_once(self, client: Client) -> bool:
        """False if there is no more."""
        data = await client.fetch(self.topic, self.offset, max_wait_ms=0)
        assert data.error_code == ErrorCode.NONE, ErrorCode(data.error_code).name
        assert isinstance(data.records, memoryview | bytes)
        batches = split(data.records)
        assert batches or self.offset == data.high_watermark, f"nothing at {self.offset} below {data.high_watermark}"
        for header, view in batches:
            if not header.is_control:
                for record in iterate(view):
                    if record.offset >= self.offset:
                        assert record.offset > self.last_offset, "offsets go back"
                        self.last_offset = record.offset
                        self._see(record.key, record.value)
            self.offset = header.next_offset
        return bool(batches)

    def _see(self, key: bytes | None, value: bytes | None) -> None:
        assert key is not None
        assert value is not None
        number = int(value.removesuffix(PADDING))
        before, self.latest[key] = self.latest.get(key, -1), number
        assert number > before, f"{key!r} goes from {before} to {number}"
        self.records += 1
