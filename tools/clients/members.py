"""Runs members of groups: consumers that say what they process and then commit it, hosted by programs that take
requests as JSON objects, one a line.

A program greets with its `version`. Asked to `join` (member, bootstrap, group, topic, assignor, weight, instance,
session_ms) it starts a consumer, and from then on reports of each member, by its name, what it `owns`, what it
`processed`, what it `committed`, that a commit was `refused`, that it has `left` as it was asked to `leave`, or how it
`failed`. Between `hold` and `release` a member commits nothing, and says when it is `held` with what it has processed.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tools.clients.client import SECONDS
from tools.clients.packages import ROOT
from tools.clients.processes import Conversation, OutsideError


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupClient:
    """A client, and what it can do in a group."""

    name: str
    install: Callable[[], Awaitable[None]]
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    assignors: Sequence[str]
    """By the names that members negotiate."""
    has_static_members: bool = True
    """Whether it knows group.instance.id."""
    gives_way: bool = True
    """Whether a static member notices that another has its instance id, and does not join again as that one."""
    at_once: int = 3
    """How many of its programs are worth the time to start them; further members share them."""


class Place(NamedTuple):
    partition: int
    offset: int
    value: str


class News:
    """Wakes the callers that wait for something that programs report."""

    def __init__(self) -> None:
        self._came = asyncio.Event()

    def publish(self) -> None:
        self._came.set()

    async def until(self, condition: Callable[[], bool], tell: Callable[[], str]) -> None:
        """Wait for it; if it never comes, say what there was instead."""
        try:
            async with asyncio.timeout(SECONDS):
                while not condition():
                    self._came.clear()
                    await self._came.wait()
        except TimeoutError:
            raise AssertionError(tell()) from None


@dataclass(slots=True)
class Member:
    """What is known of a member."""

    name: str
    host: "Host"
    owns: list[int] = field(default_factory=list)
    assignments: int = 0
    """How often it reported what it owns."""
    processed: list[Place] = field(default_factory=list)
    confirmed: list[Place] = field(default_factory=list)
    """Processed, and then committed with success."""
    uncommitted: list[Place] = field(default_factory=list)
    """Processed, and not committed yet."""
    given_up: list[Place] = field(default_factory=list)
    """Processed, and never committed: the partition was lost, or the commit was refused."""
    refusals: list[str] = field(default_factory=list)
    is_held: bool = False
    """Whether it has something to commit and waits until it may."""
    has_left: bool = False
    failure: str | None = None

    @property
    def is_gone(self) -> bool:
        return self.has_left or self.failure is not None or self.host.is_gone

    async def leave(self) -> None:
        await self.host.say({"verb": "leave", "member": self.name})

    async def hold(self) -> None:
        await self.host.say({"verb": "hold", "member": self.name})

    async def release(self) -> None:
        self.is_held = False
        await self.host.say({"verb": "release", "member": self.name})

    def heard(self, words: dict[str, Any]) -> None:
        match words:
            case {"owns": owned}:
                self.owns = owned
                self.assignments += 1
                self._settle(lambda place: place.partition not in owned, self.given_up)
            case {"processed": places}:
                came = [Place(*place) for place in places]
                self.processed += came
                self.uncommitted += came
            case {"committed": offsets}:
                self._settle(lambda place: place.offset < offsets.get(str(place.partition), 0), self.confirmed)
            case {"refused": reason}:
                self.refusals.append(reason)
                self._settle(lambda _: True, self.given_up)
            case {"held": _}:
                self.is_held = True
            case {"failed": reason}:
                self.failure = reason
            case {"left": _}:
                self.has_left = True

    def _settle(self, which: Callable[[Place], bool], to: list[Place]) -> None:
        to += [place for place in self.uncommitted if which(place)]
        self.uncommitted = [place for place in self.uncommitted if not which(place)]


class Host:
    """A running program."""

    def __init__(self, client: GroupClient, conversation: Conversation, news: News) -> None:
        self.client = client
        self.version: str = conversation.greeting["version"]
        self.is_gone = False
        self._conversation = conversation
        self._news = news
        self._members: dict[str, Member] = {}
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    @asynccontextmanager
    async def open(cls, client: GroupClient, news: News) -> AsyncIterator["Host"]:
        await client.install()
        opened = Conversation.open(client.command, seconds=SECONDS, folder=ROOT, environment=client.environment)
        async with opened as conversation:
            host = cls(client, conversation, news)
            try:
                yield host
            finally:
                await host.kill()

    async def join(
        self,
        name: str,
        *,
        bootstrap: str,
        group: str,
        topic: str,
        assignor: str,
        session_ms: int,
        instance: str | None = None,
        weight: int = 1,
    ) -> Member:
        asked = {"bootstrap": bootstrap, "group": group, "topic": topic, "assignor": assignor, "weight": weight}
        asked |= {"instance": instance, "session_ms": session_ms}
        self._members[name] = Member(name, self)
        await self.say({"verb": "join", "member": name, **asked})
        return self._members[name]

    async def say(self, words: Mapping[str, Any]) -> None:
        await self._conversation.say(words)

    def freeze(self) -> None:
        os.kill(self._conversation.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self._conversation.pid, signal.SIGCONT)

    async def kill(self) -> None:
        """With SIGKILL; and everything that it has said until then is heard."""
        await self._conversation.kill()
        await self._listening

    async def _listen(self) -> None:
        try:
            while True:
                words = await self._conversation.hear()
                self._members[words["member"]].heard(words)
                self._news.publish()
        except OutsideError as error:
            # It was killed, perhaps in the middle of a line; a caller that did not want that asks for the reason.
            self.is_gone = True
            self.farewell = str(error)
            self._news.publish()
