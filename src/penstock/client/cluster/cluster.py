"""`Cluster` sends requests to the brokers that answer them: it keeps connections and metadata, finds leaders and
coordinators, tries again when that may help, and ends every wait at a deadline."""

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar

from penstock.client.cluster.candidates import PATIENCE_SECONDS, Candidate, in_order
from penstock.client.cluster.connection import CONNECT_TIMEOUT_MS, REQUEST_TIMEOUT_MS, Connection
from penstock.client.cluster.coordinators import Coordinators
from penstock.client.cluster.leaders import LeaderHint, follow, hints_of, keep_newer
from penstock.client.cluster.outages import ConnectionListener, Outages
from penstock.client.cluster.race import UnreachedError, first_answer
from penstock.client.cluster.retries import Tries, settle
from penstock.client.cluster.security import Security
from penstock.client.errors import (
    AuthenticationError,
    BadReplyError,
    BrokerError,
    ClientError,
    ConnectionLostError,
    NoBrokerError,
    UnknownTopicError,
    broker_error,
    unwrap,
)
from penstock.client.metadata import Address, Broker, Topic, TopicPartition, near_names, read_broker, read_topic
from penstock.client.stats import ClientStats
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message, Versions
from penstock.protocol.schemas.fetch import FetchResponse
from penstock.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

logger = logging.getLogger(__name__)

# Kafka's default.api.timeout.ms and metadata.max.age.ms.
TIMEOUT_MS = 60_000
METADATA_MAX_AGE_MS = 300_000
# Near names are a courtesy: looking for them may not hold up the error that they belong to for longer than this.
NEAR_NAMES_TIMEOUT_MS = 2_000
# The lane of requests whose replies brokers hold back, unless the request names another.
POLLING_LANE: Final = "polling"

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
T = TypeVar("T")


class Route(Enum):
    """The broker that answers a request, where no leader has to; a number is a broker's id."""

    ANY = auto()
    CONTROLLER = auto()


class Target(NamedTuple):
    """A partition as a request to its leader names it."""

    topic: str
    topic_id: bytes
    partition: int
    leader_epoch: int

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(slots=True, frozen=True, kw_only=True)
class Terms:
    """The conditions under which a request is sent."""

    versions: Versions | None = None
    repeatable: bool = True
    """Whether it may be sent again when it is unknown if the first one was carried out."""
    polling: bool = False
    """Whether the broker may hold the reply back; such requests get a connection of their own, so that no other request
    waits for them."""
    lane: str = ""
    """The name of a connection that only requests with this name use; empty is the common one."""
    hold_ms: int = 0
    """How long the broker may hold the reply back, as it was asked to; only beyond that is it taken for dead."""
    timeout_ms: int | None = None
    """How long all tries together may take; None: the cluster's own timeout."""


DEFAULT_TERMS: Final = Terms()


class Cluster:
    """Nothing is opened before it is needed. Use it as `async with Cluster("localhost:9092") as cluster`.

    With `fails_fast`, unreachable bootstrap addresses are an error at once, and no outage to wait for, until a broker
    has answered for the first time.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        client_id: str = "penstock",
        timeout_ms: int = TIMEOUT_MS,
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
        security: Security | None = None,
        fails_fast: bool = True,
        on_connection: ConnectionListener | None = None,
    ) -> None:
        listed = bootstrap.split(",") if isinstance(bootstrap, str) else bootstrap
        self.bootstrap = [Address.parse(each) for each in listed]
        self.timeout_ms = timeout_ms
        self.request_timeout_ms = request_timeout_ms
        self._client_id = client_id
        self._security = security
        self._links: dict[tuple[Address, str], _Link] = {}
        self._had_contact = False
        self._fails_fast = fails_fast
        self._outages = Outages(client_id, on_connection)
        self._last_error: str | None = None
        self._is_closed = False
        # What brokers have said. What led somewhere wrong is forgotten, and asked for again.
        self._brokers: dict[int, Broker] = {}
        self._controller_id = -1
        self._are_brokers_stale = True
        self._topics: dict[str, _Told] = {}
        self._coordinators = Coordinators()
        self._asking = asyncio.Lock()
        self._times_passed_over = 0
        self._hints_taken = 0

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

    def stats(self) -> ClientStats:
        """What is known about the connections now."""
        usable = [each.connection for each in self._links.values() if each.connection and each.connection.is_open]
        return ClientStats(
            connections=len(usable),
            requests_in_flight=sum(each.in_flight for each in usable),
            unreachable=self._outages.seconds(asyncio.get_running_loop().time()),
            last_error=self._last_error,
            brokers_passed_over=self._times_passed_over,
            leader_hints=self._hints_taken,
        )

    def note(self, error: ClientError) -> None:
        """Remember the error for statistics."""
        self._last_error = str(error)

    async def topic(self, name: str, *, fresh: bool = False, timeout_ms: int | None = None) -> Topic:
        """A topic as it was described within the last minutes or, if `fresh`, now. UnknownTopicError if there is
        none."""
        return unwrap(await self.topics([name], fresh=fresh, timeout_ms=timeout_ms))[name]

    async def topics(
        self, names: Iterable[str], *, fresh: bool = False, timeout_ms: int | None = None
    ) -> dict[str, Topic | ClientError]:
        """Several topics, each with its own outcome: an unknown one does not fail the others."""

        async def attempt(tries: Tries[str, Topic]) -> None:
            tries.outcomes.update(await self._look_up(tries.remaining, fresh=fresh))

        return await self.with_near_names(await self._settle(names, attempt, Terms(timeout_ms=timeout_ms)))

    async def all_topics(self, *, timeout_ms: int | None = None) -> list[Topic]:
        """Every topic that the client may see, by name, as it is now; a topic that is just being created or deleted may
        be missing."""
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
            async def ask(connection: Connection) -> Any:
                tries.in_flight.add(what)
                return await self._exchange(connection, message, terms)

            try:
                if to is Route.ANY and terms.repeatable:
                    response = await self._ask_any(ask, hold_ms=terms.hold_ms)
                else:
                    response = await ask(await self._connection_to(to))
                tries.outcomes[what] = read(response)
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
        """Send one request to each broker that leads some of the partitions; returns the outcome of every partition.
        Partitions whose error may pass are asked for again, of the broker that leads them then; if the refusal names
        it (KIP-951), without another look at the metadata."""

        def read_and_learn(response: Any, targets: Sequence[Target]) -> Mapping[TopicPartition, T | ClientError]:
            if isinstance(response, FetchResponse):
                for topic, hint in hints_of(response, {target.key: target.topic_id for target in targets}):
                    self.take_hint(topic, hint)
            return read(response, targets)

        async def attempt(tries: Tries[TopicPartition, T]) -> None:
            routes = await self._route(tries)
            used = {target.topic: self._topics.get(target.topic) for targets in routes.values() for target in targets}
            async with asyncio.TaskGroup() as group:
                for broker, targets in routes.items():
                    keys = {target.key for target in targets}
                    group.create_task(
                        self._ask(broker, keys, targets, tries, build=build, read=read_and_learn, terms=terms)
                    )
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
        """As `request_to_leaders`, for one partition; `read` raises the error that it finds."""
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
        """Send one request to each broker that coordinates some of the groups, or with `one_by_one` one for each group;
        returns the outcome of every group. Groups whose error may pass are asked for again, of the broker that
        coordinates them then."""

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
        """As `request_to_coordinators`, for one group; `read` raises the error that it finds."""
        outcomes = await self.request_to_coordinators(
            [group], lambda _: message, lambda response, _: {group: read(response)}, terms=terms
        )
        return unwrap(outcomes)[group]

    def broker(self, number: int) -> Broker | None:
        """A broker as metadata, or a hint, described it last."""
        return self._brokers.get(number)

    def take_hint(self, name: str, hint: LeaderHint) -> Topic | None:
        """Believe a broker that named another one as leader, if that is newer than what is known: returns the topic as
        it is known now. None if the hint is of no use: metadata has to be asked for."""
        told = self._topics.get(name)
        topic = None if told is None else follow(told.topic, hint)
        if told is None or topic is None or (hint.broker is None and hint.leader not in self._brokers):
            return None
        if hint.broker is not None:
            self._brokers[hint.leader] = hint.broker
        self._topics[name] = told._replace(topic=topic)
        self._hints_taken += 1
        return topic

    async def connect(self, broker: Broker, *, lane: str = "") -> Connection:
        """The open connection of that lane to a broker, for callers that send and retry by themselves."""
        try:
            return await self._connect(broker.address, lane)
        except ConnectionLostError as error:
            # The commonest mistake in setting up a cluster: an address that only the brokers themselves can reach.
            hint = f"that is what broker {broker.id} gives as its address (advertised.listeners)"
            raise ConnectionLostError(f"{error}; {hint}") from error

    async def with_near_names(self, outcomes: dict[K, V | ClientError]) -> dict[K, V | ClientError]:
        """Adds to each error about an unknown topic the existing names that look like it."""
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
        outcomes = await settle(keys, attempt, timeout_ms=timeout_ms, repeatable=terms.repeatable)
        for outcome in outcomes.values():
            if isinstance(outcome, ClientError):
                self.note(outcome)
        return outcomes

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
        """The broker to ask about each group; groups for which none can be found get their outcome."""
        found = self._coordinators.recall(tries.remaining)
        if missing := [group for group in tries.remaining if group not in found]:
            try:
                find = partial(self._coordinators.find, missing, timeout_ms=self.request_timeout_ms)
                found |= await self._ask_any(find)
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
        """The broker to ask for each partition; partitions for which none can be found get their outcome."""
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
                # Another call may have asked for the topic meanwhile.
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
        before = self._brokers
        response = await self._ask_for_metadata(names)
        found: dict[str, Topic | ClientError] = {name: UnknownTopicError(name) for name in names}
        for told in response.topics:
            if told.name not in found:
                continue
            known = self._topics.pop(told.name, None)
            if told.error_code == 0:
                described = read_topic(told)
                topic = keep_newer(None if known is None else known.topic, described)
                found[told.name] = topic
                self._topics[told.name] = _Told(topic, asked_at)
                if topic is not described:
                    # A broker that has not heard of a leader may not have heard of its address either.
                    leaders = {each.leader for each in topic.partitions}
                    self._brokers |= {each: before[each] for each in leaders & before.keys() - self._brokers.keys()}
            elif told.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                found[told.name] = broker_error(told.error_code, f"topic {told.name!r}")
        return found

    async def _ask_for_metadata(self, names: Collection[str]) -> MetadataResponse:
        """Ask for topics; the answer also brings the list of brokers up to date."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
        )
        response = _read_metadata(
            await self._ask_any(lambda connection: self._exchange(connection, request, DEFAULT_TERMS))
        )
        self._brokers = {broker.id: broker for broker in map(read_broker, response.brokers)}
        self._controller_id = response.controller_id
        self._are_brokers_stale = False
        self._outages.keep({*self.bootstrap, *(broker.address for broker in self._brokers.values())})
        return response

    def _forget(self, name: str, told: "_Told | None") -> None:
        """Ask again for what led to the wrong broker, and only for that: another request may have learned better
        meanwhile. The leader epochs are still needed, to tell what is newer."""
        if told is not None and self._topics.get(name) is told:
            self._topics[name] = told._replace(at=-math.inf)

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
        """A connection to a broker that is not silent, if there is one."""

        async def take(connection: Connection) -> Connection:
            return connection

        return await self._ask_any(take)

    async def _ask_any(self, ask: Callable[[Connection], Awaitable[T]], *, hold_ms: int = 0) -> T:
        """What one of the brokers answers, whichever it is. A silent one is passed over: another one is asked, too,
        and the first answer counts. The silent one keeps its connection, until its own timeout ends it."""

        async def attempt(candidate: Candidate) -> T:
            try:
                connection = await self._connect(candidate.address)
            except (ConnectionLostError, BadReplyError) as error:
                raise UnreachedError([error]) from error
            return await ask(connection)

        def pass_over(candidate: Candidate) -> None:
            self._times_passed_over += 1
            logger.debug("%s is silent, so another broker is asked", candidate.address)

        candidates = in_order(self._candidates())
        for candidate in candidates:
            if candidate.is_silent and candidate.is_open and not candidates[0].is_silent:
                pass_over(candidate)
        patience = PATIENCE_SECONDS + hold_ms / 1000
        try:
            return await first_answer(candidates, attempt, patience=patience, passed_over=pass_over)
        except UnreachedError as error:
            # What never spoke Kafka is a wrong address or a wrong security.protocol, and not a broker that is down.
            is_mistake = not self._had_contact and all(isinstance(each, BadReplyError) for each in error.errors)
            may_pass = not is_mistake and not self._raises_at_once
            raise NoBrokerError(f"no broker can be reached: {error}", may_pass=may_pass) from None

    def _candidates(self) -> list[Candidate]:
        """Every address at which a broker may answer, in random order."""
        known = dict.fromkeys(broker.address for broker in self._brokers.values())
        common = {address: link.connection for (address, lane), link in self._links.items() if not lane}
        usable = {address: each for address, each in common.items() if each is not None and each.is_open}
        silences: dict[Address, float] = {}
        for (address, _), link in self._links.items():
            silences[address] = max(silences.get(address, 0.0), link.silent_seconds)
        addresses = list(dict.fromkeys((*usable, *known, *self.bootstrap)))
        return [
            Candidate(
                address=address,
                is_open=address in usable,
                in_flight=usable[address].in_flight if address in usable else 0,
                silent_seconds=silences.get(address, 0.0),
                is_known=address in known,
            )
            for address in random.sample(addresses, len(addresses))
        ]

    async def _connect(self, address: Address, lane: str = "") -> Connection:
        link = self._links.setdefault((address, lane), _Link())
        # One caller opens the connection, the others wait; if it gives up, the next one tries.
        async with link.lock:
            if self._is_closed:
                raise ClientError("the cluster was closed here: make a new one")
            if link.connection is None or not link.connection.is_open:
                link.opening_since = asyncio.get_running_loop().time()
                try:
                    link.connection = await self._open(address)
                finally:
                    link.opening_since = None
            if self._is_closed:
                await link.connection.close()
                raise ClientError("the cluster was closed here: make a new one")
            return link.connection

    async def _open(self, address: Address) -> Connection:
        try:
            connection = await Connection.open(
                address.host,
                address.port,
                client_id=self._client_id,
                timeout_ms=min(CONNECT_TIMEOUT_MS, self.request_timeout_ms),
                request_timeout_ms=self.request_timeout_ms,
                security=self._security,
            )
        except ClientError as error:
            self.note(error)
            # What the caller is told at once needs no warning.
            if not self._raises_at_once and not isinstance(error, AuthenticationError):
                self._outages.lost(address, error, asyncio.get_running_loop().time())
            raise
        self._had_contact = True
        self._outages.back(address, asyncio.get_running_loop().time())
        connection.lost = partial(self._lost, address)
        return connection

    @property
    def _raises_at_once(self) -> bool:
        """Whether an unreachable broker is an error of the caller, and no outage."""
        return self._fails_fast and not self._had_contact

    def _lost(self, address: Address, error: ClientError, was_in_use: bool) -> None:
        """Brokers close idle connections, too: that is no outage, the next request opens another."""
        if was_in_use:
            self.note(error)
            self._outages.lost(address, error, asyncio.get_running_loop().time())
        else:
            logger.debug("an idle connection to %s has ended: %s", address, error)


@dataclass(slots=True)
class _Link:
    """One address: its connection, once it is open, and the task that opens it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    connection: Connection | None = None
    opening_since: float | None = None

    @property
    def silent_seconds(self) -> float:
        """How long the broker has not answered here, although it should have."""
        if self.opening_since is not None:
            return asyncio.get_running_loop().time() - self.opening_since
        return self.connection.silent_seconds if self.connection is not None and self.connection.is_open else 0.0


class _Told(NamedTuple):
    topic: Topic
    at: float


def _read_metadata(response: MetadataResponse) -> MetadataResponse:
    if response.error_code:
        raise broker_error(response.error_code, "the cluster's metadata")
    return response
