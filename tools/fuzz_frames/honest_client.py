"""The honest client asks for what it has a right to, beside others that do not."""

from typing import Any

from penstock.broker.broker import Broker
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.records import NewRecord, build
from penstock.protocol.schema import Message
from penstock.protocol.schemas.groups import HeartbeatRequest
from penstock.protocol.session import ClientSession
from tests.broker.harness import NOW_MS, fetch_request, fetched, produce_request, produced, records_of
from tools.fuzz_frames import names
from tools.fuzz_frames.memory_transport import MemoryTransport


class HarmError(Exception):
    """The honest client was harmed."""


class HonestClient:
    """`check` makes its requests alike every time; a HarmError says what was wrong with an answer."""

    def __init__(self, broker: Broker) -> None:
        self._session = ClientSession("honest")
        self._transport = MemoryTransport(broker.services.loop, keeps=True).open(broker)
        self._sent = 0

    async def ask(self, message: Message, version: int) -> Any:
        _, chunks = self._session.send(message, version)
        self._transport.deliver(b"".join(map(bytes, chunks)))
        if not await self._transport.settled():
            raise HarmError(f"the honest client got no answer to {type(message).__name__}")
        received, self._transport.received = self._transport.received, []
        replies = self._session.receive(b"".join(received))
        if len(replies) != 1:
            raise HarmError(f"the honest client got {len(replies)} answers to {type(message).__name__}")
        return replies[0].response

    async def check(self) -> None:
        """A record that is acknowledged is there to be read, and a member stays a member."""
        value = b"%d" % self._sent
        request = produce_request(names.HONEST_TOPIC, build([NewRecord(value, timestamp=NOW_MS)]))
        written = produced(await self.ask(request, 12))
        expect("its Produce", written.error_code, ErrorCode.NONE)
        expect("the offset of its record", written.base_offset, self._sent)
        read = fetched(await self.ask(fetch_request(names.HONEST_TOPIC, self._sent), 12))
        expect("its Fetch", read.error_code, ErrorCode.NONE)
        expect("the record that it reads", [record.value for record in records_of(read)], [value])
        self._sent += 1
        beat = HeartbeatRequest(group_id=names.HONEST_GROUP, generation_id=1, member_id=names.HONEST_MEMBER)
        expect("its Heartbeat", (await self.ask(beat, 3)).error_code, ErrorCode.NONE)


def expect(what: str, got: object, wanted: object) -> None:
    if got != wanted:
        raise HarmError(f"{what} of the honest client: {got!r} instead of {wanted!r}")
