"""Drives clients that are libraries, each in a program of its own that takes requests as JSON objects, one a line.

It greets with its `version`. Asked to `produce` (topic, codec, acks, records) it answers `sent` or `refused`. Asked to
`fetch` (topic, at, value, count) it answers `records`; if it was to begin at the end, it says `ready`, with the offset,
before. An answer of `failed` says what went wrong otherwise. It ends when its input does.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from penstock.protocol.records import NewRecord, Record
from tools.clients.client import SECONDS, Ready, RefusedError, Session, Start
from tools.clients.packages import ROOT
from tools.clients.processes import Conversation, OutsideError
from tools.clients.records import read_from_json, to_json


class Program:
    """A session with such a program."""

    def __init__(self, conversation: Conversation) -> None:
        self.version: str = conversation.greeting["version"]
        self._conversation = conversation

    async def produce(
        self, bootstrap: str, topic: str, records: Sequence[NewRecord], *, codec: str, acks: str | None = None
    ) -> None:
        asked = {"bootstrap": bootstrap, "topic": topic, "codec": codec, "acks": acks}
        await self._ask({"verb": "produce", **asked, "records": [to_json(record) for record in records]})

    async def fetch(
        self, bootstrap: str, topic: str, start: Start, count: int, ready: Ready | None = None
    ) -> list[Record]:
        asked = {"bootstrap": bootstrap, "topic": topic, "at": start.at, "value": start.value, "count": count}
        answer = await self._ask({"verb": "fetch", **asked}, ready)
        return [read_from_json(record) for record in answer["records"]]

    async def _ask(self, words: Mapping[str, Any], ready: Ready | None = None) -> dict[str, Any]:
        async with asyncio.timeout(SECONDS):
            await self._conversation.say(words)
            while True:
                match await self._conversation.hear():
                    case {"ready": offset}:
                        assert ready is not None
                        await ready(offset)
                    case {"refused": reason}:
                        raise RefusedError(reason)
                    case {"failed": reason}:
                        raise OutsideError(reason)
                    case answer:
                        return answer


def program(
    command: Sequence[str], environment: Mapping[str, str] | None = None
) -> Callable[[], AbstractAsyncContextManager[Session]]:
    """What starts a program."""

    @asynccontextmanager
    async def start() -> AsyncIterator[Session]:
        opened = Conversation.open(command, seconds=SECONDS, folder=ROOT, environment=environment or {})
        async with opened as conversation:
            yield Program(conversation)

    return start
