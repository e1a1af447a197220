"""Services are what a broker offers to its handlers: partitions, groups, cluster, clock, and ids to be drawn."""

import asyncio
import secrets
import socket
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.broker.cluster.controlling import Controlling
from penstock.broker.cluster.forwarder import Forwarder, Unanswered
from penstock.broker.cluster.metadata_pieces import MetadataPieces
from penstock.broker.cluster.own_topics import create_topic
from penstock.broker.cluster.registration import BrokerRegistration
from penstock.broker.cluster.state import ClusterState
from penstock.broker.config.typed import BrokerConfig
from penstock.broker.coordinators.groups import GroupCoordinators
from penstock.broker.coordinators.producer_ids import ProducerIds
from penstock.broker.engine.turn import Turn
from penstock.broker.metrics.meters import Meters
from penstock.broker.network.call import Call
from penstock.broker.network.peers import Peers
from penstock.broker.pacing import Pacing
from penstock.broker.partitions.disk_space import DiskSpace
from penstock.broker.partitions.fetch_wait import FetchRoom
from penstock.broker.partitions.record_checking import RecordChecking
from penstock.broker.partitions.registry import Partitions
from penstock.broker.partitions.replica_reads import ReplicaReads
from penstock.broker.router import Route
from penstock.machines import topic_names
from penstock.machines.cluster import ClusterImage
from penstock.machines.decisions import Refused
from penstock.machines.fetch_sessions import FetchSessions
from penstock.protocol.error_codes import ErrorCode


class AdvertisedBroker(NamedTuple):
    """A broker as the clients of one listener are told of it."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    is_alive: bool


@dataclass(eq=False, kw_only=True)
class Services:
    """A broker makes one each time it starts. `configure` replaces the config when it changes; all else stays.
    `ports` gets the port of each listener once it is open."""

    config: BrokerConfig
    node_id: int
    cluster_id: str
    routes: dict[int, Route]
    ports: Mapping[str, int]
    loop: asyncio.AbstractEventLoop
    now_ms: Callable[[], int]
    cluster: ClusterState
    controlling: Controlling
    registration: BrokerRegistration
    partitions: Partitions
    turn: Turn
    groups: GroupCoordinators
    fetch_room: FetchRoom
    fetch_sessions: FetchSessions
    replica_reads: ReplicaReads
    producer_ids: ProducerIds
    record_checking: RecordChecking
    pacing: Pacing
    meters: Meters
    disk: DiskSpace
    peers: Peers
    metadata_pieces: MetadataPieces = field(default_factory=MetadataPieces)
    image: ClusterImage = field(init=False)
    forwarder: Forwarder = field(init=False)
    fetch_max_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.image = self.cluster.image
        self.forwarder = Forwarder(self)
        self.configure(self.config)

    def configure(self, config: BrokerConfig) -> None:
        """Take over a config. What nearly every request needs of it is looked up here, once."""
        self.config = config
        self.fetch_max_bytes = config.integer("fetch.max.bytes")
        self.meters.requests.slow.set_threshold_ms(config.integer("penstock.slow.request.ms"))

    # Brokers

    @property
    def controller_id(self) -> int:
        """The broker that decides for the cluster. While there is none, this broker takes requests for it."""
        return self.image.controller_id if self.image.controller_id >= 0 else self.node_id

    @property
    def address(self) -> tuple[str, int]:
        """The host and the port where clients connect, by the first listener."""
        return self.addresses[self.config.listeners[0].name]

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        """The host and the port that clients of each listener are asked to connect to."""
        advertised = self.config.advertised_listeners(bound_ports=self.ports, machine=socket.gethostname())
        return {endpoint.name: (endpoint.host, endpoint.port) for endpoint in advertised}

    def advertised_brokers(self, call: Call, *, also_fenced: bool = False) -> list[AdvertisedBroker]:
        """The brokers that are alive, at the addresses that go with the listener the client came by; and those of which
        the cluster knows no more than where they were."""
        listener = call.connection.listener_name
        own = self.addresses.get(listener, self.address)
        addresses = [
            (node, own if node.broker_id == self.node_id else node.address(listener))
            for node in (self.image.brokers.values() if also_fenced else self.image.live_brokers())
        ]
        return [
            AdvertisedBroker(node.broker_id, *address, node.rack, node.is_alive)
            for node, address in addresses
            if address is not None
        ]

    # Topics

    async def create_topic(self, name: str) -> Refused | None:
        """Create a topic with all the defaults, because a client has asked about it; None if it is created."""
        defaults = self.config.creation_defaults
        try:
            await create_topic(
                self.forwarder.ask,
                name,
                partitions=defaults.partitions,
                replication_factor=defaults.replication_factor,
            )
        except Unanswered as unanswered:
            # Clients ask again about a topic that is about to have a leader.
            return Refused(ErrorCode.LEADER_NOT_AVAILABLE, unanswered.message)
        except Refused as refused:
            return refused
        return None

    def check_topic_name(self, name: str) -> ErrorCode | None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION if topic_names.problem(name) else None

    # Ids

    def draw_member_id(self) -> str:
        return str(uuid.uuid4())

    def draw_session_id(self) -> int:
        return secrets.randbelow(0x7FFF_FFFF - 1) + 1
