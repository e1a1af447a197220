"""Reads the topics that members of a consumer group subscribe to; the rest of what they say is for their assignor."""

from collections.abc import Iterable
from struct import Struct
from typing import Final

from penstock.protocol import codec
from penstock.protocol.errors import DecodeError
from penstock.protocol.schemas.embedded import ConsumerProtocolSubscription

CONSUMER: Final = "consumer"
"""The protocol type under which members' metadata is a subscription."""

MAX_TOPICS: Final = 10_000
"""The most topics that are kept of a group. If it subscribes to more, any topic may be one of them."""

_VERSION: Final = Struct(">h")
_decode: Final = codec.decoder(ConsumerProtocolSubscription, 0)


def subscribed_topics(metadata: Iterable[bytes | None]) -> frozenset[str] | None:
    """All topics together, or None if one of the members cannot be understood or they are more than are kept."""
    topics: set[str] = set()
    for subscription in metadata:
        one = _topics(subscription)
        if one is None:
            return None
        topics.update(one)
        if len(topics) > MAX_TOPICS:
            return None
    return frozenset(topics)


def _topics(subscription: bytes | None) -> Iterable[str] | None:
    if subscription is None or len(subscription) < _VERSION.size or _VERSION.unpack_from(subscription)[0] < 0:
        return None
    try:
        # Every version begins like version 0, and only what that has is needed.
        message, _ = _decode(memoryview(subscription), _VERSION.size)
    except DecodeError:
        return None
    topics: Iterable[str] = message.topics
    return topics
