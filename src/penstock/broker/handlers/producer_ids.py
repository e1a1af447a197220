"""The handler of InitProducerId 0 to 5 gives every idempotent producer an id of its own.

Version 3 adds the id and epoch that a producer has (KIP-360), 4 an error for fenced producers (KIP-588), and 5 one of
transactions (KIP-890).
"""

from penstock.broker.network.call import Call
from penstock.broker.router import Router
from penstock.broker.services import Services
from penstock.machines.decisions import Refused
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.transactions import InitProducerIdRequest, InitProducerIdResponse

router = Router()


@router.handles(InitProducerIdRequest, versions=(0, 5))
async def init_producer_id(services: Services, call: Call, request: InitProducerIdRequest) -> Message:
    if request.transactional_id is not None:
        # Fatal on purpose: a client would retry anything else for ever.
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    try:
        producer_id = await services.producer_ids.next()
    except Refused:
        # As Kafka's, and it makes clients ask again.
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
