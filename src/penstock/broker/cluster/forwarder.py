"""The forwarder takes requests that only the controller may answer to it, wherever it is, and brings the answers back.

A client's request travels as the bytes that it is, in an Envelope (KIP-590). The answer is given when this broker has
followed the metadata log as far as the controller had when it answered: a client that asks here reads what it wrote.
"""

import asyncio
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.cluster.controlling import NotControllerError
from penstock.broker.network.call import Call
from penstock.broker.network.peer import PeerError
from penstock.broker.network.stand_in import call_of_broker
from penstock.broker.pacing import Written
from penstock.machines.decisions import Refused
from penstock.protocol.codec import encode
from penstock.protocol.enclosed import enclose_request, read_reply
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.framing import frame
from penstock.protocol.schema import Message
from penstock.protocol.schemas.configs import AlterConfigsRequest, IncrementalAlterConfigsRequest
from penstock.protocol.schemas.replication import EnvelopeRequest, EnvelopeResponse

if TYPE_CHECKING:
    from penstock.broker.services import Services

# How long an answer waits until this broker has followed what the controller wrote.
FOLLOW_SECONDS: Final = 1.0
# Pauses between looks for the controller: they double, and end early when the metadata log grows.
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 1.0
# What ends in the same state if it is carried out twice. Own requests of brokers all do.
_REPEATABLE: Final = frozenset({AlterConfigsRequest.schema.key, IncrementalAlterConfigsRequest.schema.key})
_MILLISECONDS: Final = 1000

Here = Callable[[], Awaitable[Message | Written]]


class Unanswered(Refused):
    """The controller was not found, or has not answered. REQUEST_TIMED_OUT: it may have done what it was asked."""


class Forwarder:
    def __init__(self, services: "Services") -> None:
        self._services = services

    async def forward(self, call: Call, here: Here, *, timeout_ms: int) -> Message | Written:
        """The reply to a client's call, by `here` while this broker is the controller. `Unanswered` after the timeout,
        or when it is unknown whether the controller has made the change."""
        host = call.connection.peer.rpartition(":")[0]
        envelope = EnvelopeRequest(
            request_data=enclose_request(call),
            request_principal=None,
            client_host_address=_packed(host),
            listener_name=call.connection.listener_name,
        )
        reply = await self._decide(
            here,
            envelope,
            timeout=timeout_ms / _MILLISECONDS,
            is_repeatable=call.api.key in _REPEATABLE,
            purpose="forwarding",
        )
        if isinstance(reply, EnvelopeResponse):
            return Written(None, frame([_enclosed(reply)]))
        return reply

    async def ask(self, request: Message, *, timeout: float) -> Any:
        """The reply to a request of this broker's own, which may be carried out twice. `Unanswered` after the
        timeout."""
        services = self._services
        key = type(request).schema.key
        assert key is not None, "only a request can be asked"
        route = services.routes[key]
        assert route.forwarded is not None, f"{route.api.name} is not the controller's"
        version = route.versions.last
        own = services.peers.own()
        call = call_of_broker(
            route.api, version, own, listener_name=services.config.inter_broker_listener, now=services.loop.time()
        )

        async def here() -> Message | Written:
            outcome: Message | Written = await route.handler(services, call, request)  # type: ignore[misc]
            return outcome

        call.body = memoryview(encode(request, version))
        envelope = EnvelopeRequest(request_data=enclose_request(call), request_principal=None, of_broker=True)
        reply = await self._decide(here, envelope, timeout=timeout, is_repeatable=True, purpose="control")
        if isinstance(reply, Written):
            assert reply.response is not None
            return reply.response
        if isinstance(reply, EnvelopeResponse):
            return read_reply(route.api, version, call.correlation_id, _enclosed(reply))
        return reply

    async def _decide(
        self, here: Here, envelope: EnvelopeRequest, *, timeout: float, is_repeatable: bool, purpose: str
    ) -> Message | Written:
        """What the controller answers, or the Envelope with it, if it is another broker."""
        services = self._services
        deadline = services.loop.time() + timeout
        pause = FIRST_PAUSE
        why = "the cluster has no controller"
        while True:
            try:
                if services.controlling.is_controller:
                    return await here()
                controller_id = services.image.controller_id
                if controller_id not in (-1, services.node_id):
                    reply = await self._send(controller_id, envelope, deadline, is_repeatable, purpose)
                    is_unknown = reply.error_code == ErrorCode.REQUEST_TIMED_OUT
                    if reply.error_code != ErrorCode.NOT_CONTROLLER and not (is_unknown and is_repeatable):
                        await asyncio.wait([services.cluster.reached(reply.metadata_index)], timeout=FOLLOW_SECONDS)
                        return reply
                    why = f"broker {controller_id} is no longer the controller"
            except (PeerError, NotControllerError) as error:
                if error.outcome_unknown and not is_repeatable:
                    message = f"it is unknown whether the controller has made the change: {error}"
                    raise Unanswered(ErrorCode.REQUEST_TIMED_OUT, message) from error
                why = str(error)
            left = deadline - services.loop.time()
            if left <= 0:
                raise Unanswered(ErrorCode.NOT_CONTROLLER, f"no controller was found in time: {why}")
            await asyncio.wait([services.cluster.reached(services.cluster.index + 1)], timeout=min(pause, left))
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _send(
        self, controller_id: int, envelope: EnvelopeRequest, deadline: float, is_repeatable: bool, purpose: str
    ) -> EnvelopeResponse:
        """Ask another broker. When there is a newer controller meanwhile, what may be repeated does not wait for the
        old one, which may be paused."""
        services = self._services
        epoch = services.image.controller_epoch
        timeout = deadline - services.loop.time()
        asking = asyncio.ensure_future(
            services.peers.request(controller_id, envelope, timeout=timeout, purpose=purpose)
        )
        try:
            while is_repeatable and services.image.controller_epoch == epoch and not asking.done():
                grown = services.cluster.reached(services.cluster.index + 1)
                await asyncio.wait([asking, grown], return_when=asyncio.FIRST_COMPLETED)
                if grown.cancelled():
                    break
            if is_repeatable and services.image.controller_epoch != epoch and not asking.done():
                raise PeerError(f"broker {controller_id} is no longer the controller", outcome_unknown=True)
            reply: EnvelopeResponse = await asking
            return reply
        finally:
            asking.cancel()


def _enclosed(reply: EnvelopeResponse) -> bytes:
    if reply.error_code or reply.response_data is None:
        raise Unanswered(ErrorCode(reply.error_code), "the controller cannot read the request in this version")
    return reply.response_data


def _packed(host: str) -> bytes:
    """An address as Kafka puts it into an Envelope; nothing for what is none."""
    try:
        return ip_address(host.partition("%")[0]).packed
    except ValueError:
        return b""
