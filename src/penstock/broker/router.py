"""Which function answers which API in which versions: one table that dispatch, ApiVersions and the reference read."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from penstock.protocol.apis import Api, api
from penstock.protocol.schema import Message, Versions

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.call import Call

# A handler returns the reply, or what will give it, or LATER if it calls `call.reply` itself when the time has come.
# While something is awaited the connection makes no further calls, unless the handler lets it (`connection.release`).
LATER: Final = object()
Handler: TypeAlias = "Callable[[Broker, Call, Any], Message | Awaitable[Message] | object]"
# Is tried before the request is decoded: whether it took the call.
Quick: TypeAlias = "Callable[[Broker, Call], bool]"
H = TypeVar("H", bound=Callable[..., Any])


@dataclass(slots=True, frozen=True)
class Route:
    api: Api
    versions: Versions
    advertised: Versions
    handler: Handler
    quick: "Quick | None" = None


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
    ) -> Callable[[H], H]:
        """Versions are inclusive. What is advertised beyond them closes the connection."""
        key = request.schema.key
        assert key is not None
        kind = api(key)
        assert all(version in request.schema.versions for version in versions)

        def register(handler: H) -> H:
            self.routes.append(Route(kind, Versions(*versions), Versions(*(advertised or versions)), handler, quick))
            return handler

        return register


def route_table(routers: Iterable[Router]) -> dict[int, Route]:
    table: dict[int, Route] = {}
    for router in routers:
        for route in router.routes:
            assert route.api.key not in table, f"{route.api.name} has two handlers"
            table[route.api.key] = route
    return dict(sorted(table.items()))
