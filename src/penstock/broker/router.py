"""Routers say which function answers which API in which versions; dispatch, ApiVersions and the reference read them."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from penstock.protocol.apis import Api, api
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message, Versions

if TYPE_CHECKING:
    from penstock.broker.network.call import Call
    from penstock.broker.services import Services

# A handler returns the reply, an awaitable of it, or LATER if it calls `call.reply` itself when the time has come.
# While something is awaited the connection makes no further calls, unless the handler lets it (`connection.release`).
LATER: Final = object()
Handler: TypeAlias = "Callable[[Services, Call, Any], Message | Awaitable[Message] | object]"
# A quick handler is tried before the request is decoded, and returns whether it took the call.
Quick: TypeAlias = "Callable[[Services, Call], bool]"
# Makes the reply to a request that the controller was not found for, or has not answered: every part of it is refused.
Refusal: TypeAlias = Callable[[Any, ErrorCode, str], Message]
H = TypeVar("H", bound=Callable[..., Any])


@dataclass(slots=True, frozen=True)
class Route:
    api: Api
    versions: Versions
    advertised: Versions
    handler: Handler
    quick: "Quick | None" = None
    forwarded: Refusal | None = None
    brokers_only: bool = False


class Router:
    """The routes of one family of APIs."""

    def __init__(self) -> None:
        self.routes: list[Route] = []

    def handles(
        self,
        request: type[Message],
        *,
        versions: tuple[int, int],
        advertised: tuple[int, int] | None = None,
        quick: "Quick | None" = None,
        forwarded: Refusal | None = None,
        brokers_only: bool = False,
    ) -> Callable[[H], H]:
        """Register a handler. Versions are inclusive; those that are advertised beyond them close the connection.

        What is `forwarded` only the controller may do: it runs there, wherever the client is connected. What is for
        `brokers_only` is offered to brokers that have proved the secret of the cluster; to others it does not exist.
        """
        key = request.schema.key
        assert key is not None
        kind = api(key)
        assert all(version in request.schema.versions for version in versions)

        def register(handler: H) -> H:
            told = Versions(*(advertised or versions))
            self.routes.append(Route(kind, Versions(*versions), told, handler, quick, forwarded, brokers_only))
            return handler

        return register


def route_table(routers: Iterable[Router]) -> dict[int, Route]:
    table: dict[int, Route] = {}
    for router in routers:
        for route in router.routes:
            assert route.api.key not in table, f"{route.api.name} has two handlers"
            table[route.api.key] = route
    return dict(sorted(table.items()))
