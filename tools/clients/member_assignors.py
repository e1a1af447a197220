"""Implements an assignor of our own, for clients that take one: members say in their subscriptions, as user data, how
much they can carry, and get partitions accordingly."""

from collections.abc import Iterable, Mapping
from typing import Any

BY_WEIGHT = "by-weight"


def share_out(partitions: Iterable[int], weights: Mapping[str, int]) -> dict[str, list[int]]:
    """Give each partition to the member that then carries least for its weight."""
    shares: dict[str, list[int]] = {member: [] for member in sorted(weights)}
    for partition in sorted(partitions):
        member = min(shares, key=lambda each: (len(shares[each]) + 1) / weights[each])
        shares[member].append(partition)
    return shares


class ByWeightForKafkaPython:
    name = BY_WEIGHT

    def __init__(self, weight: int) -> None:
        self._user_data = str(weight).encode()

    def supported_protocols(self) -> list[Any]:
        from kafka.coordinator.assignors.abstract import RebalanceProtocol

        return [RebalanceProtocol.EAGER]

    def metadata(self, topics: Iterable[str]) -> Any:
        from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

        return ConsumerProtocolSubscription(0, list(topics), self._user_data)

    def assign(self, cluster: Any, members: Any) -> dict[str, Any]:
        from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

        [topic] = {topic for member in members for topic in member.metadata.topics}
        weights = {member.member_id: int(bytes(member.metadata.user_data)) for member in members}
        shares = share_out(cluster.partitions_for_topic(topic), weights)
        return {member: ConsumerProtocolAssignment(0, [(topic, share)], b"") for member, share in shares.items()}

    def on_assignment(self, assignment: Any, generation: int) -> None:
        pass


class ByWeightForAiokafka:
    name = BY_WEIGHT

    def __init__(self, weight: int) -> None:
        self._user_data = str(weight).encode()

    def metadata(self, topics: Iterable[str]) -> Any:
        from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata

        return ConsumerProtocolMemberMetadata(0, list(topics), self._user_data)

    def assign(self, cluster: Any, members: Any) -> dict[str, Any]:
        from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

        [topic] = {topic for metadata in members.values() for topic in metadata.subscription}
        weights = {member: int(metadata.user_data) for member, metadata in members.items()}
        shares = share_out(cluster.partitions_for_topic(topic), weights)
        return {member: ConsumerProtocolMemberAssignment(0, [(topic, share)], b"") for member, share in shares.items()}

    def on_assignment(self, assignment: Any) -> None:
        pass
