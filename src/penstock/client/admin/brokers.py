"""`describe_cluster` reports which brokers a cluster has, and which of them is the controller."""

from dataclasses import dataclass

from penstock.client.cluster.cluster import Cluster, Terms
from penstock.client.errors import broker_error
from penstock.client.metadata import Broker
from penstock.protocol.schemas.cluster import DescribeClusterRequest, DescribeClusterResponse


@dataclass(slots=True, frozen=True)
class ClusterDescription:
    """`fenced` are those of the brokers that the cluster knows and that are not alive; -1 is no controller."""

    cluster_id: str
    controller_id: int
    brokers: tuple[Broker, ...]
    fenced: frozenset[int] = frozenset()


async def describe_cluster(
    cluster: Cluster, *, include_fenced: bool = False, timeout_ms: int | None = None
) -> ClusterDescription:
    """The brokers that are alive; those that are not only if they are wanted, and the brokers report them."""

    def read(response: DescribeClusterResponse) -> ClusterDescription:
        if response.error_code:
            raise broker_error(response.error_code, "the cluster", response.error_message)
        brokers = sorted(response.brokers, key=lambda told: told.broker_id)
        return ClusterDescription(
            response.cluster_id,
            response.controller_id,
            tuple(Broker(told.broker_id, told.host, told.port, told.rack) for told in brokers),
            frozenset(told.broker_id for told in brokers if told.is_fenced),
        )

    request = DescribeClusterRequest(include_fenced_brokers=include_fenced)
    return await cluster.request(request, read, terms=Terms(timeout_ms=timeout_ms))
