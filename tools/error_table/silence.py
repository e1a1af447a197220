"""What a producer is told while a replica that counts as in sync is silent: its record is written and not committed."""

import asyncio
from collections.abc import Mapping

from penstock.protocol.schemas.transactions import InitProducerIdRequest
from tools.error_table.cells import BROKERS, MIN_ISR, SPARE, Target, topic_of
from tools.error_table.control import Control
from tools.error_table.wire import View, connected, look, new_batch, produce_batch

# All brokers are up, so that the last one leads.
LEADER, SILENT = BROKERS - 1, BROKERS - 2
TIMEOUT_MS = 250
"""How long the leader may wait for the silent one."""


async def ask_in_silence(bootstrap: str, control: Control) -> dict[str, str]:
    view = await look(bootstrap, [topic_of(min_isr) for min_isr in MIN_ISR])
    async with connected(*view.addresses[LEADER]) as leader:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        batches = {min_isr: new_batch(await leader.request(request)) for min_isr in MIN_ISR}
    await control.silence(SILENT)
    try:
        first = await _send(view, batches, timeout_ms=TIMEOUT_MS)
        again = await _send(view, batches, timeout_ms=TIMEOUT_MS)
    finally:
        await control.wake(SILENT)
    answers = {
        "Produce while a replica is silent": first,
        "the batch again, meanwhile": again,
        "the batch again, afterwards": await _send(view, batches),
    }
    return {
        f"{what}, min.insync.replicas={min_isr}": answer
        for min_isr in MIN_ISR
        for what, told in answers.items()
        for answer in [told[min_isr]]
    }


async def _send(view: View, batches: Mapping[int, bytes], **timeout: int) -> dict[int, str]:
    async def send(min_isr: int) -> str:
        to = Target(topic_of(min_isr), SPARE)
        async with connected(*view.addresses[LEADER]) as leader:
            return await produce_batch(leader, view, to, -1, batches[min_isr], **timeout)

    # Each in a connection of its own, since requests of one are answered in their order.
    return dict(zip(batches, await asyncio.gather(*map(send, batches)), strict=True))
