"""Producer ids, fetched from the cluster in blocks."""

import asyncio
from typing import Final

from penstock.broker.cluster_state import ClusterState

BLOCK: Final = 1000


class ProducerIds:
    """What is left of a block when the broker stops is never given away: the ids are many."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self._block = iter(range(0))
        self._one_at_a_time = asyncio.Lock()

    async def next(self) -> int:
        async with self._one_at_a_time:
            number = next(self._block, None)
            if number is None:
                self._block = iter(
                    await self._cluster.change(lambda controller: controller.allocate_producer_ids(BLOCK))
                )
                number = next(self._block)
            return number
