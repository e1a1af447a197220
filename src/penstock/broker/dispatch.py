"""The dispatcher takes a call to its handler: it checks the version, decodes, and turns errors into replies."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable
from functools import partial
from typing import Any, Final

from penstock.broker.cluster.forwarder import Unanswered
from penstock.broker.log_rates import RatedLog
from penstock.broker.network.call import Call
from penstock.broker.pacing import ClientGoneError, Gate, ReplyTooLargeError, Written
from penstock.broker.router import LATER, Handler, Route
from penstock.broker.services import Services
from penstock.protocol.apis import API_VERSIONS, PRODUCE
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.errors import DecodeError, EncodeError
from penstock.protocol.schema import Message

log = RatedLog(logging.getLogger(__name__))

# A longer request is decoded in a thread, unless it brings records, which stay bytes.
DECODED_AT_ONCE_BYTES: Final = 32 * 1024
# The largest request, unless it brings records. Decoded, small items take dozens of times their bytes on the wire.
MAX_BYTES: Final = 8 * 1024 * 1024
# The bytes of all long requests that are decoded and worked on at the same time.
LONG_BYTES: Final = 2 * MAX_BYTES
# What another broker puts around a request that it forwards.
ENVELOPE_BYTES: Final = 64 * 1024


class Dispatcher:
    def __init__(self, services: Services, routes: dict[int, Route]) -> None:
        self._services = services
        self._routes = routes
        self._tasks: set[asyncio.Task[None]] = set()
        self._long = Gate(LONG_BYTES)

    def dispatch(self, call: Call) -> None:
        route = self._routes.get(call.api.key)
        if route is None:
            call.give_up(f"{call.api.name} is not offered")
            return
        versions = route.versions
        if not versions.first <= call.version <= versions.last:
            if call.api.key == API_VERSIONS:
                call.reply(route_versions(self._routes, call, ErrorCode.UNSUPPORTED_VERSION), version=0)
            else:
                call.give_up(
                    f"{call.api.name} is offered in versions {route.versions.first} to "
                    f"{route.versions.last}, not {call.version}"
                )
            return
        try:
            if route.quick is not None and route.quick(self._services, call):
                return
            if route.brokers_only and call.connection.broker is None:
                call.give_up(f"{call.api.name} is not offered")
                return
            if route.forwarded is not None:
                self._forward(route, call)
                return
            if len(call.body) > DECODED_AT_ONCE_BYTES and call.api.key != PRODUCE:
                self._begin_long(route, call)
                return
            outcome = route.handler(self._services, call, call.decode())
        except DecodeError as error:
            call.give_up(str(error))
            return
        except Exception as error:
            self._failed(call, error)
            return
        if outcome is LATER:
            return
        if isinstance(outcome, Message):
            call.reply(outcome)
        else:
            assert inspect.isawaitable(outcome)
            self._finish_later(call, outcome)

    async def close(self) -> None:
        """Wait for the requests under way, and cancel those that do not end."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=5)
            for task in late:
                task.cancel()

    def _begin_long(self, route: Route, call: Call) -> None:
        if self._keep(route, call):
            self._finish_later(call, self._work_long(route.handler, call))

    def _keep(self, route: Route, call: Call) -> bool:
        """Copy the body, since the receive buffer is used again; unless there is too much of it."""
        limit = MAX_BYTES + ENVELOPE_BYTES if route.brokers_only else MAX_BYTES
        if len(call.body) > limit:
            call.give_up(f"a request of {len(call.body)} bytes to {call.api.name}, which takes up to {limit}")
            return False
        call.body = memoryview(bytes(call.body))
        return True

    def _forward(self, route: Route, call: Call) -> None:
        """Let the controller answer, which may be this broker."""
        timeout_ms = 0
        if len(call.body) <= DECODED_AT_ONCE_BYTES:
            timeout_ms = getattr(call.decode(), "timeout_ms", 0)
        longest_ms = self._services.config.integer("request.timeout.ms")
        if self._keep(route, call):
            timeout_ms = min(timeout_ms, longest_ms) if timeout_ms > 0 else longest_ms
            self._finish_later(call, self._answer_by_controller(route, call, timeout_ms))

    async def _answer_by_controller(self, route: Route, call: Call, timeout_ms: int) -> Any:
        assert route.forwarded is not None
        try:
            here = partial(self._work, route.handler, call)
            return await self._services.forwarder.forward(call, here, timeout_ms=timeout_ms)
        except Unanswered as unanswered:
            refusal, code, message = route.forwarded, unanswered.code, unanswered.message
            return await self._work(lambda _, __, request: refusal(request, code, message), call)

    async def _work(self, handler: Handler, call: Call) -> Any:
        if len(call.body) > DECODED_AT_ONCE_BYTES:
            return await self._work_long(handler, call)
        outcome = handler(self._services, call, call.decode())
        return await outcome if inspect.isawaitable(outcome) else outcome

    async def _work_long(self, handler: Handler, call: Call) -> Any:
        size = len(call.body)
        await self._long.enter(size)
        try:
            if not call.connection.is_open:
                raise ClientGoneError
            request = await self._services.loop.run_in_executor(None, call.decode)
            outcome = handler(self._services, call, request)
            if outcome is LATER:
                # The calls after it need not wait for its reply, as if it had been made at once.
                call.connection.release(call)
            return await outcome if inspect.isawaitable(outcome) else outcome
        finally:
            self._long.leave(size)

    def _finish_later(self, call: Call, outcome: Awaitable[Any]) -> None:
        call.connection.hold(call)
        task = asyncio.ensure_future(self._finish(call, outcome))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(self, call: Call, outcome: Awaitable[Any]) -> None:
        try:
            response = await outcome
            if isinstance(response, Written):
                if response.response is not None:
                    self._services.meters.requests.replied(call, response.response)
                call.connection.reply_written(call, response.chunks)
            elif response is not LATER:
                call.reply(response)
        except ClientGoneError:
            pass
        except (DecodeError, EncodeError, ReplyTooLargeError) as error:
            call.give_up(str(error))
        except Exception as error:
            self._failed(call, error)

    def _failed(self, call: Call, error: Exception) -> None:
        # A bug of ours. No error code would make the client do the right thing, so it starts over.
        facts = {"api": call.api.name, "version": call.version}
        log.error("a request failed", owner=self, kind=call.api.name, extra=facts, exc_info=error)
        call.give_up("internal error")


def route_versions(routes: dict[int, Route], call: Call, error: ErrorCode = ErrorCode.NONE) -> Message:
    """An ApiVersions reply with the ranges that this client is offered; handlers/versions adds the rest."""
    from penstock.protocol.schemas.versions import ApiVersion, ApiVersionsResponse

    ranges = [
        ApiVersion(api_key=key, min_version=route.advertised.first, max_version=route.advertised.last)
        for key, route in routes.items()
        if call.connection.broker is not None or not route.brokers_only
    ]
    return ApiVersionsResponse(error_code=error, api_keys=ranges)
