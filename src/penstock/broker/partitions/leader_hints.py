"""Leader hints tell a client that asked the wrong broker which one leads now, and where that broker is (KIP-951)."""

from penstock.broker.network.call import Call
from penstock.broker.services import AdvertisedBroker, Services
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.produce import LeaderIdAndEpoch, NodeEndpoint, ProduceResponse

# The version of Produce that has them.
PRODUCE_SINCE = 10


class LeaderHints:
    """The leaders that one reply names, as the image of the cluster has them."""

    __slots__ = ("_leaders", "_services")

    def __init__(self, services: Services) -> None:
        self._services = services
        self._leaders: set[int] = set()

    def find(self, topic: str | bytes, index: int) -> tuple[int, int] | None:
        """The leader of a partition and its epoch; None for a partition that does not exist. The leader is -1 while
        there is none."""
        image = self._services.image
        known = image.topics.get(topic) if isinstance(topic, str) else image.topics_by_id.get(topic)
        if known is None or not 0 <= index < len(known.partitions):
            return None
        partition = known.partitions[index]
        self._leaders.add(partition.leader)
        return partition.leader, partition.leader_epoch

    def addresses(self, call: Call) -> list[AdvertisedBroker]:
        """Where the leaders are that were found, as far as they are alive."""
        if not self._leaders:
            return []
        return [node for node in self._services.advertised_brokers(call) if node.broker_id in self._leaders]


def add_hints(services: Services, call: Call, response: ProduceResponse) -> None:
    """Add the leaders of all partitions that this broker does not lead."""
    if call.version < PRODUCE_SINCE:
        return
    hints = LeaderHints(services)
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                found = hints.find(topic.name or topic.topic_id, partition.index)
                if found is not None:
                    partition.current_leader = LeaderIdAndEpoch(leader_id=found[0], leader_epoch=found[1])
    response.node_endpoints = [
        NodeEndpoint(node_id=node.broker_id, host=node.host, port=node.port, rack=node.rack)
        for node in hints.addresses(call)
    ]
