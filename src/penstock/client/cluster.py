"""A cluster as its clients use it: connections to its brokers, what they say about topics, and requests that find
their broker, are tried again when that may help, and end at a deadline."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar

from penstock.client.connection import CONNECT_TIMEOUT_MS, REQUEST_TIMEOUT_MS, Address, Connection
from penstock.client.coordinators import Coordinators
from penstock.client.errors import (
    BadReplyError,
    BrokerError,
    ClientError,
    ConnectionLostError,
    NoBrokerError,
    UnknownTopicError,
    broker_error,
    unwrap,
)
from penstock.client.metadata import Broker, Topic, TopicPartition, near_names, read_broker, read_topic
from penstock.client.retrying import Tries, settle
from penstock.client.security import Security
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message, Versions
from penstock.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

# Kafka's default.api.timeout.ms and metadata.max.age.ms.
TIMEOUT_MS = 60_000
METADATA_MAX_AGE_MS = 300_000
# For the courtesy of near names, which may not hold up the error that they belong to.
NEAR_NAMES_TIMEOUT_MS = 2_000
# Where replies that brokers hold back do so, unless the request says otherwise.
POLLING_LANE: Final = "polling"

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
T = TypeVar("T")


class Route(Enum):
    """Who answers a request, where it is no matter of leadership; a number would be a broker's id."""

    ANY = auto()
    CONTROLLER = auto()


class Target(NamedTuple):
    """A partition in the words in which its leader is asked for it."""

    topic: str
    topic_id: bytes
    partition: int
    leader_epoch: int

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(slots=True, frozen=True, kw_only=True)
class Terms:
    """How a request may be treated on its way."""

    versions: Versions | None = None
    repeatable: bool = True
    """Whether it may be sent again when it is unknown if the first one was carried out."""
    polling: bool = False
    """Whether the broker may hold the reply back; such requests get a connection on which nothing waits behind them."""
    lane: str = ""
    """The name of a connection that only requests with this name use; empty is the common one."""
    hold_ms: int = 0
    """How long the broker may take by what it was asked; only beyond that is it taken for dead."""
    timeout_ms: int | None = None
    """How long all tries together may take; the cluster's own timeout if nobody says."""


DEFAULT_TERMS: Final = Terms()


class Cluster:
    """Nothing is opened before it is needed. Use it as `async with Cluster("localhost:9092") as cluster`.

    Until a broker has answered once, an unreachable bootstrap address is an error and no outage to wait for.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        client_id: str = "penstock",
        timeout_ms: int = TIMEOUT_MS,
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
        security: Security | None = None,
    ) -> None:
        listed = bootstrap.split(",") if isinstance(bootstrap, str) else bootstrap
        self.bootstrap = [Address.parse(each) for each in listed]
        self.timeout_ms = timeout_ms
        self.request_timeout_ms = request_timeout_ms
        self._client_id = client_id
        self._security = security
        self._links: dict[tuple[Address, str], _Link] = {}
        self._had_contact = False
        self._is_closed = False
        # What brokers have said. What led somewhere wrong is forgotten, and asked for again.
        self._brokers: dict[int, Broker] = {}
        self._controller_id = -1
        self._are_brokers_stale = True
        self._topics: dict[str, _Told] = {}
        self._coordinators = Coordinators()
        self._asking = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; requests that are under way fail."""
        self._is_closed = True
        async with asyncio.TaskGroup() as group:
            for link in self._links.values():
                if link.connection is not None:
                    group.create_task(link.connection.close())

    async def topic(self, name: str, *, fresh: bool = False, timeout_ms: int | None = None) -> Topic:
        """A topic as it was told within the last minutes, or, if `fresh`, now. UnknownTopicError if there is none."""
        return unwrap(await self.topics([name], fresh=fresh, timeout_ms=timeout_ms))[name]

    async def topics(
        self, names: Iterable[str], *, fresh: bool = False, timeout_ms: int | None = None
    ) -> dict[str, Topic | ClientError]:
        """Several topics, each by itself: one that is unknown takes no other with it."""

        async def attempt(tries: Tries[str, Topic]) -> None:
            tries.outcomes.update(await self._look_up(tries.remaining, fresh=fresh))

        return await self.with_near_names(await self._settle(names, attempt, Terms(timeout_ms=timeout_ms)))

    async def all_topics(self, *, timeout_ms: int | None = None) -> list[Topic]:
        """Every topic that we may see, by name, as it is now; one that is just being made or deleted may be missing."""
        everything = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        told = await self.request(everything, _read_metadata, terms=Terms(timeout_ms=timeout_ms))
        return sorted((read_topic(each) for each in told.topics if each.error_code == 0), key=lambda each: each.name)

    async def leader(self, topic: str, partition: int, *, timeout_ms: int | None = None) -> Broker:
        """The broker that leads a partition; waited for, until the deadline, while there is none."""
        key = TopicPartition(topic, partition)

        async def attempt(tries: Tries[TopicPartition, Broker]) -> None:
            for broker in await self._route(tries):
                tries.outcomes[key] = broker

        return unwrap(await self.with_near_names(await self._settle([key], attempt, Terms(timeout_ms=timeout_ms))))[key]

    async def request(
        self,
        message: Message,
        read: Callable[[Any], T] = lambda response: response,
        *,
        to: Route | int = Route.ANY,
        terms: Terms = DEFAULT_TERMS,
    ) -> T:
        """What `read` makes of the response. A BrokerError that it raises is treated like a failure on the way: the
        request is tried again if that may help."""

        what = type(message).__name__.removesuffix("Request")

        async def attempt(tries: Tries[str, T]) -> None:
            try:
                connection = await self._connection_to(to)
                tries.in_flight.add(what)
                tries.outcomes[what] = read(await self._exchange(connection, message, terms))
            except ClientError as error:
                tries.outcomes[what] = error
                self._are_brokers_stale = True
            tries.in_flight.discard(what)

        outcomes: dict[str, T | ClientError] = await self._settle([what], attempt, terms)
        return unwrap(outcomes)[what]

    async def request_to_leaders(
        self,
        partitions: Iterable[TopicPartition],
        build: Callable[[Sequence[Target]], Message],
        read: Callable[[Any, Sequence[Target]], Mapping[TopicPartition, T | ClientError]],
        *,
        terms: Terms = DEFAULT_TERMS,
    ) -> dict[TopicPartition, T | ClientError]:
        """One request to each broker that leads some of the partitions, and the outcome of every partition. Those whose
        error may pass are asked for again, of whoever leads them then."""

        async def attempt(tries: Tries[TopicPartition, T]) -> None:
            routes = await self._route(tries)
            used = {target.topic: self._topics.get(target.topic) for targets in routes.values() for target in targets}
            async with asyncio.TaskGroup() as group:
                for broker, targets in routes.items():
                    keys = {target.key for target in targets}
                    group.create_task(self._ask(broker, keys, targets, tries, build=build, read=read, terms=terms))
            for key in tries.remaining:
                if isinstance(tries.outcomes[key], ClientError):
                    self._forget(key.topic, used.get(key.topic))

        return await self.with_near_names(await self._settle(partitions, attempt, terms))

    async def request_to_leader(
        self,
        partition: TopicPartition,
        build: Callable[[Target], Message],
        read: Callable[[Any, Target], T],
        *,
        terms: Terms = DEFAULT_TERMS,
    ) -> T:
        """The same for one partition; `read` raises the error that it finds."""
        outcomes = await self.request_to_leaders(
            [partition],
            lambda targets: build(targets[0]),
            lambda response, targets: {partition: read(response, targets[0])},
            terms=terms,
        )
        return unwrap(outcomes)[partition]

    async def coordinator(self, group: str, *, timeout_ms: int | None = None) -> Broker:
        """The broker that coordinates a group; waited for, until the deadline, while there is none."""

        async def attempt(tries: Tries[str, Broker]) -> None:
            for broker in await self._route_groups(tries):
                tries.outcomes[group] = broker

        found: dict[str, Broker | ClientError] = await self._settle([group], attempt, Terms(timeout_ms=timeout_ms))
        return unwrap(found)[group]

    async def request_to_coordinators(
        self,
        groups: Iterable[str],
        build: Callable[[Sequence[str]], Message],
        read: Callable[[Any, Sequence[str]], Mapping[str, T | ClientError]],
        *,
        one_by_one: bool = False,
        terms: Terms = DEFAULT_TERMS,
    ) -> dict[str, T | ClientError]:
        """One request to each broker that coordinates some of the groups, or with `one_by_one` one for each group, and
        the outcome of every group. Those whose error may pass are asked for again, of whoever coordinates them then."""

        async def attempt(tries: Tries[str, T]) -> None:
            routes = await self._route_groups(tries)
            async with asyncio.TaskGroup() as tasks:
                for broker, names in routes.items():
                    for part in [[name] for name in names] if one_by_one else [names]:
                        tasks.create_task(self._ask(broker, part, part, tries, build=build, read=read, terms=terms))
            for broker, names in routes.items():
                for name in names:
                    if isinstance(tries.outcomes[name], ClientError):
                        self._coordinators.forget(name, broker)

        return await self._settle(groups, attempt, terms)

    async def request_to_coordinator(
        self,
        group: str,
        message: Message,
        read: Callable[[Any], T],
        *,
        terms: Terms = DEFAULT_TERMS,
    ) -> T:
        """The same for one group; `read` raises the error that it finds."""
        outcomes = await self.request_to_coordinators(
            [group], lambda _: message, lambda response, _: {group: read(response)}, terms=terms
        )
        return unwrap(outcomes)[group]

    def broker(self, number: int) -> Broker | None:
        """What was told last about a broker."""
        return self._brokers.get(number)

    async def connect(self, broker: Broker, *, lane: str = "") -> Connection:
        """The open connection of that lane to a broker, for who sends and retries by himself."""
        try:
            return await self._connect(broker.address, lane)
        except ConnectionLostError as error:
            # The commonest mistake in setting up a cluster: an address that only the brokers themselves can reach.
            hint = f"that is what broker {broker.id} gives as its address (advertised.listeners)"
            raise ConnectionLostError(f"{error}; {hint}") from error

    async def with_near_names(self, outcomes: dict[K, V | ClientError]) -> dict[K, V | ClientError]:
        """The same outcomes, in which the error about an unknown topic says which names look like it."""
        unknown = {key: outcome for key, outcome in outcomes.items() if isinstance(outcome, UnknownTopicError)}
        if unknown:
            try:
                names = [topic.name for topic in await self.all_topics(timeout_ms=NEAR_NAMES_TIMEOUT_MS)]
            except ClientError:
                return outcomes
            for key, error in unknown.items():
                outcomes[key] = UnknownTopicError(error.topic, near_names(error.topic, names))
        return outcomes

    async def _settle(
        self, keys: Iterable[K], attempt: Callable[[Tries[K, V]], Awaitable[None]], terms: Terms
    ) -> dict[K, V | ClientError]:
        timeout_ms = self.timeout_ms if terms.timeout_ms is None else terms.timeout_ms
        return await settle(keys, attempt, timeout_ms=timeout_ms, repeatable=terms.repeatable)

    async def _exchange(self, connection: Connection, message: Message, terms: Terms) -> Any:
        timeout_ms = self.request_timeout_ms + terms.hold_ms
        return await connection.request(message, versions=terms.versions, timeout_ms=timeout_ms)

    async def _ask(
        self,
        broker: Broker,
        keys: Collection[K],
        parts: Sequence[Any],
        tries: Tries[K, T],
        *,
        build: Callable[[Any], Message],
        read: Callable[[Any, Any], Mapping[K, T | ClientError]],
        terms: Terms,
    ) -> None:
        """One request of a try; every key gets its outcome."""
        try:
            connection = await self.connect(broker, lane=terms.lane or (POLLING_LANE if terms.polling else ""))
            tries.in_flight.update(keys)
            answers = read(await self._exchange(connection, build(parts), terms), parts)
        except ClientError as error:
            tries.outcomes.update(dict.fromkeys(keys, error))
        else:
            missing = BadReplyError(f"broker {broker.id} left out what it was asked for; its log may say why")
            tries.outcomes.update({key: answers.get(key, missing) for key in keys})
        tries.in_flight.difference_update(keys)

    async def _route_groups(self, tries: Tries[str, Any]) -> dict[Broker, list[str]]:
        """Whom to ask about which groups; those of which that cannot be said get their outcome."""
        found = self._coordinators.recall(tries.remaining)
        if missing := [group for group in tries.remaining if group not in found]:
            try:
                found |= await self._coordinators.find(missing, await self._any_connection(), self.request_timeout_ms)
            except ClientError as error:
                found |= dict.fromkeys(missing, error)
        routes: dict[Broker, list[str]] = {}
        for group in tries.remaining:
            broker = found[group]
            if isinstance(broker, ClientError):
                tries.outcomes[group] = broker
            else:
                routes.setdefault(broker, []).append(group)
        return routes

    async def _route(self, tries: Tries[TopicPartition, Any]) -> dict[Broker, list[Target]]:
        """Whom to ask for what; the partitions of which that cannot be said get their outcome."""
        topics = await self._look_up({key.topic for key in tries.remaining})
        routes: dict[Broker, list[Target]] = {}
        for key in tries.remaining:
            topic = topics[key.topic]
            try:
                if isinstance(topic, ClientError):
                    raise topic
                partition = topic.partition(key.partition)
                if (broker := self._brokers.get(partition.leader)) is None:
                    raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, str(key))
            except ClientError as error:
                tries.outcomes[key] = error
                self._forget(key.topic, self._topics.get(key.topic))
            else:
                target = Target(topic.name, topic.topic_id, key.partition, partition.leader_epoch)
                routes.setdefault(broker, []).append(target)
        return routes

    async def _look_up(self, names: Collection[str], *, fresh: bool = False) -> dict[str, Topic | ClientError]:
        found = {} if fresh else self._recall(names)
        if len(found) < len(names):
            async with self._asking:
                # Somebody else may have asked for the same meanwhile.
                found = {} if fresh else self._recall(names)
                if missing := [name for name in names if name not in found]:
                    try:
                        found |= await self._ask_for_topics(missing)
                    except ClientError as error:
                        found |= dict.fromkeys(missing, error)
        return found

    def _recall(self, names: Collection[str]) -> dict[str, Topic | ClientError]:
        too_old = asyncio.get_running_loop().time() - METADATA_MAX_AGE_MS / 1000
        recalled = {name: self._topics.get(name) for name in names}
        return {name: told.topic for name, told in recalled.items() if told is not None and told.at > too_old}

    async def _ask_for_topics(self, names: Collection[str]) -> dict[str, Topic | ClientError]:
        asked_at = asyncio.get_running_loop().time()
        response = await self._ask_for_metadata(names)
        found: dict[str, Topic | ClientError] = {name: UnknownTopicError(name) for name in names}
        for told in response.topics:
            if told.name not in found:
                continue
            self._topics.pop(told.name, None)
            if told.error_code == 0:
                topic = read_topic(told)
                found[told.name] = topic
                self._topics[told.name] = _Told(topic, asked_at)
            elif told.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                found[told.name] = broker_error(told.error_code, f"topic {told.name!r}")
        return found

    async def _ask_for_metadata(self, names: Collection[str]) -> MetadataResponse:
        """Also brings the list of brokers up to date."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
        )
        connection = await self._any_connection()
        response = _read_metadata(await self._exchange(connection, request, DEFAULT_TERMS))
        self._brokers = {broker.id: broker for broker in map(read_broker, response.brokers)}
        self._controller_id = response.controller_id
        self._are_brokers_stale = False
        return response

    def _forget(self, name: str, told: "_Told | None") -> None:
        """Only what led us wrong: another request may have learned better meanwhile."""
        if self._topics.get(name) is told:
            self._topics.pop(name, None)

    async def _connection_to(self, to: Route | int) -> Connection:
        if to is Route.ANY:
            return await self._any_connection()
        if self._are_brokers_stale:
            await self._ask_for_metadata(())
        broker = self._brokers.get(self._controller_id if isinstance(to, Route) else to)
        if broker is not None:
            return await self.connect(broker)
        if to is Route.CONTROLLER:
            return await self._any_connection()
        numbers = ", ".join(map(str, sorted(self._brokers)))
        raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {to}", f"the brokers of the cluster are {numbers}")

    async def _any_connection(self) -> Connection:
        """The open connection with the least to do, else the first broker, in any order, that can be reached."""
        usable = [
            link.connection
            for (_, lane), link in self._links.items()
            if not lane and link.connection is not None and link.connection.is_open
        ]
        if usable:
            return min(usable, key=lambda connection: connection.in_flight)
        known = {broker.address for broker in self._brokers.values()}
        others = [address for address in self.bootstrap if address not in known]
        failures = []
        for address in (*random.sample(list(known), len(known)), *random.sample(others, len(others))):
            try:
                return await self._connect(address)
            except (ConnectionLostError, BadReplyError) as error:
                failures.append(str(error))
        raise NoBrokerError(f"no broker can be reached: {'; '.join(failures)}", had_contact=self._had_contact)

    async def _connect(self, address: Address, lane: str = "") -> Connection:
        link = self._links.setdefault((address, lane), _Link())
        # One opens it, the others wait; if he who opens it gives up, the next one tries.
        async with link.lock:
            if self._is_closed:
                raise ClientError("the cluster was closed here: make a new one")
            if link.connection is None or not link.connection.is_open:
                link.connection = await Connection.open(
                    address.host,
                    address.port,
                    client_id=self._client_id,
                    timeout_ms=min(CONNECT_TIMEOUT_MS, self.request_timeout_ms),
                    request_timeout_ms=self.request_timeout_ms,
                    security=self._security,
                )
            self._had_contact = True
            if self._is_closed:
                await link.connection.close()
                raise ClientError("the cluster was closed here: make a new one")
            return link.connection


@dataclass(slots=True)
class _Link:
    """The way to one address: a connection, once it is open, and who is opening it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    connection: Connection | None = None


class _Told(NamedTuple):
    topic: Topic
    at: float


def _read_metadata(response: MetadataResponse) -> MetadataResponse:
    if response.error_code:
        raise broker_error(response.error_code, "the cluster's metadata")
    return response
