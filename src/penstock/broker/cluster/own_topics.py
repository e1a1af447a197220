"""Brokers themselves ask the controller to create topics: those that clients ask about, and that of groups."""

from collections.abc import Mapping
from typing import Any, Final, Protocol

from penstock.machines.decisions import Refused
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

# Clients wait meanwhile, and ask again.
TIMEOUT_SECONDS: Final = 5.0


class Ask(Protocol):
    """What `Forwarder.ask` does."""

    async def __call__(self, request: Message, *, timeout: float) -> Any: ...


async def create_topic(
    ask: Ask, name: str, *, partitions: int, replication_factor: int, configs: Mapping[str, str] | None = None
) -> None:
    """Create a topic; `Refused` if it cannot be."""
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=int(TIMEOUT_SECONDS * 1000))
    [result] = (await ask(request, timeout=TIMEOUT_SECONDS)).topics
    if result.error_code:
        raise Refused(ErrorCode(result.error_code), result.error_message or "")
