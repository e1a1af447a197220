"""InitProducerId 0 to 5: a number of its own for every idempotent producer."""

from typing import TYPE_CHECKING

from penstock.broker.call import Call
from penstock.broker.router import Router
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.transactions import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

router = Router()


@router.handles(InitProducerIdRequest, versions=(0, 5))
async def init_producer_id(broker: "Broker", call: Call, request: InitProducerIdRequest) -> Message:
    if request.transactional_id is not None:
        # Fatal on purpose: a client would retry anything else for ever.
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=await broker.producer_ids.next(), producer_epoch=0)
