"""A producer id, under which brokers recognise what was sent twice."""

import asyncio
from collections.abc import Callable

from penstock.client import retrying
from penstock.client.cluster import Cluster, Terms
from penstock.client.errors import ClientError, ConnectionLostError, NoBrokerError, TimedOutError, broker_error
from penstock.protocol.schemas.transactions import InitProducerIdRequest, InitProducerIdResponse

TRY_MS = 5_000


async def ask_for_id(cluster: Cluster, failed: Callable[[ClientError], None]) -> tuple[int, int]:
    """An id and its first epoch; waited for as long as brokers cannot be reached, of which `failed` is told each time.
    A refusal is raised."""

    def read(response: InitProducerIdResponse) -> tuple[int, int]:
        if response.error_code:
            raise broker_error(response.error_code, "a producer id")
        return response.producer_id, response.producer_epoch

    # The timeout is one of transactions, which there are none of.
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
    tries = 0
    while True:
        try:
            return await cluster.request(request, read, terms=Terms(timeout_ms=TRY_MS))
        except (TimedOutError, ConnectionLostError, NoBrokerError) as error:
            failed(error)
            tries += 1
            await asyncio.sleep(retrying.backoff_ms(tries) / 1000)
        except ClientError as error:
            error.add_note("a producer that is not idempotent needs no id: set enable.idempotence=False")
            raise
