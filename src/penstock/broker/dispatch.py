"""From a call to its handler and back: versions, decoding, and the one place where errors become replies."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from penstock.broker.call import Call
from penstock.broker.router import LATER, Route
from penstock.protocol.apis import API_VERSIONS
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.errors import DecodeError
from penstock.protocol.schema import Message

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

log = logging.getLogger(__name__)


class Dispatcher:
    def __init__(self, broker: "Broker", routes: dict[int, Route]) -> None:
        self._broker = broker
        self._routes = routes
        self._tasks: set[asyncio.Task[None]] = set()

    def dispatch(self, call: Call) -> None:
        route = self._routes.get(call.api.key)
        if route is None:
            call.give_up(f"{call.api.name} is not offered")
            return
        versions = route.versions
        if not versions.first <= call.version <= versions.last:
            if call.api.key == API_VERSIONS:
                call.reply(route_versions(self._routes, ErrorCode.UNSUPPORTED_VERSION), version=0)
            else:
                call.give_up(
                    f"{call.api.name} is offered in versions {route.versions.first} to "
                    f"{route.versions.last}, not {call.version}"
                )
            return
        try:
            if route.quick is not None and route.quick(self._broker, call):
                return
            outcome = route.handler(self._broker, call, call.decode())
        except DecodeError as error:
            call.give_up(str(error))
            return
        except Exception:
            self._failed(call)
            return
        if outcome is LATER:
            return
        if isinstance(outcome, Message):
            call.reply(outcome)
        else:
            assert inspect.isawaitable(outcome)
            call.connection.hold(call)
            task = asyncio.ensure_future(self._finish(call, outcome))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Wait for what is being done, and end what does not end."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=5)
            for task in late:
                task.cancel()

    async def _finish(self, call: Call, outcome: Awaitable[Any]) -> None:
        try:
            response = await outcome
            if response is not LATER:
                call.reply(response)
        except DecodeError as error:
            call.give_up(str(error))
        except Exception:
            self._failed(call)

    def _failed(self, call: Call) -> None:
        # A bug of ours. The client cannot be told anything that it would act on rightly, so it starts over.
        log.exception("a request failed", extra={"api": call.api.name, "version": call.version})
        call.give_up("internal error")


def route_versions(routes: dict[int, Route], error: ErrorCode = ErrorCode.NONE) -> Message:
    """An ApiVersions reply that tells the ranges; see handlers/versions for the rest of it."""
    from penstock.protocol.schemas.versions import ApiVersion, ApiVersionsResponse

    ranges = [
        ApiVersion(api_key=key, min_version=route.advertised.first, max_version=route.advertised.last)
        for key, route in routes.items()
    ]
    return ApiVersionsResponse(error_code=error, api_keys=ranges)
