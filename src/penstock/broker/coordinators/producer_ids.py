"""Producer ids are fetched from the controller in blocks, and given out one by one."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from penstock.machines.broker_proof import Identity
from penstock.machines.decisions import Refused
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.replication import AllocateProducerIdsRequest

TIMEOUT_SECONDS: Final = 10.0


class ProducerIds:
    """The rest of a block is lost when the broker stops; there are plenty of ids. `ask` is the forwarder's."""

    def __init__(self, ask: Callable[..., Awaitable[Any]], own: Callable[[], Identity]) -> None:
        self._ask = ask
        self._own = own
        self._block = iter(range(0))
        self._one_at_a_time = asyncio.Lock()

    async def next(self) -> int:
        """An id that no other producer has or had; `Refused` while the controller gives none."""
        async with self._one_at_a_time:
            number = next(self._block, None)
            if number is None:
                own = self._own()
                request = AllocateProducerIdsRequest(broker_id=own.node_id, broker_epoch=own.broker_epoch)
                response = await self._ask(request, timeout=TIMEOUT_SECONDS)
                if response.error_code:
                    raise Refused(ErrorCode(response.error_code), "the controller gives no producer ids")
                first = response.producer_id_start
                self._block = iter(range(first, first + response.producer_id_len))
                number = next(self._block)
            return number
