"""Handlers of SaslHandshake 1 and SaslAuthenticate 0 to 2 let brokers prove the secret of their cluster.

Clients do not authenticate: the one mechanism is for brokers, on the listener that they use among each other.
"""

from penstock.broker.network.call import Call
from penstock.broker.router import Router
from penstock.broker.services import Services
from penstock.machines.broker_proof import MECHANISM, ProofError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

router = Router()


@router.handles(SaslHandshakeRequest, versions=(1, 1))
def handshake(services: Services, call: Call, request: SaslHandshakeRequest) -> Message:
    connection = call.connection
    if connection.listener_name != services.config.inter_broker_listener:
        # As Kafka answers on a listener without authentication.
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    if request.mechanism != MECHANISM:
        return SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=[MECHANISM])
    if connection.broker is not None or connection.proving is not None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[MECHANISM])
    connection.proving = services.peers.listening_side()
    return SaslHandshakeResponse(mechanisms=[MECHANISM])


@router.handles(SaslAuthenticateRequest, versions=(0, 2))
def authenticate(services: Services, call: Call, request: SaslAuthenticateRequest) -> Message:
    connection = call.connection
    proving = connection.proving
    if proving is None:
        message = "SaslHandshake comes first, once, and authentication once after it"
        return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=message)
    try:
        if not proving.has_challenged:
            return SaslAuthenticateResponse(error_message=None, auth_bytes=proving.challenge(request.auth_bytes))
        # Whatever comes of it, there is one attempt to a challenge.
        connection.proving = None
        connection.proved(proving.check(request.auth_bytes))
    except ProofError as error:
        connection.proving = None
        return SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=str(error))
    return SaslAuthenticateResponse(error_message=None)
