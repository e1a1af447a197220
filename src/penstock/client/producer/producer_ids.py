"""`ask_for_id` gets a producer id, by which brokers recognise batches that were sent twice."""

import asyncio
from collections.abc import Callable

from penstock.client.cluster import retries as retrying
from penstock.client.cluster.cluster import Cluster, Terms
from penstock.client.errors import ClientError, ConnectionLostError, NoBrokerError, TimedOutError, broker_error
from penstock.protocol.schemas.transactions import InitProducerIdRequest, InitProducerIdResponse

TRY_MS = 5_000


async def ask_for_id(cluster: Cluster, failed: Callable[[ClientError], None]) -> tuple[int, int]:
    """An id and its first epoch. It waits as long as brokers cannot be reached, and calls `failed` after each try. A
    refusal is raised."""

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
