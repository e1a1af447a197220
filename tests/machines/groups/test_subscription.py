"""Topics out of what members of consumer groups say."""

from struct import pack

import pytest

from penstock.machines.groups.subscription import MAX_TOPICS, subscribed_topics
from penstock.protocol import codec
from penstock.protocol.schemas.embedded import ConsumerProtocolSubscription


def said(*topics: str, version: int = 3, claimed: int | None = None) -> bytes:
    message = ConsumerProtocolSubscription(topics=topics, user_data=b"anything")
    return pack(">h", version if claimed is None else claimed) + codec.encode(message, version)


@pytest.mark.parametrize("version", range(4))
def test_every_version_tells_its_topics(version: int) -> None:
    assert subscribed_topics([said("a", "b", version=version), said("b", "c", version=version)]) == frozenset("abc")


def test_a_later_version_is_read_like_those_we_know() -> None:
    assert subscribed_topics([said("a", claimed=9)]) == frozenset("a")


def test_nobody_subscribes_to_nothing() -> None:
    assert subscribed_topics([]) == frozenset()


@pytest.mark.parametrize(
    "metadata", [None, b"", b"\0", b"\0\0", b"\0\0\0\0\0\5", b"\xff\xff\0\0\0\0", b"my own format"]
)
def test_one_member_that_is_not_understood_makes_all_unknown(metadata: bytes | None) -> None:
    assert subscribed_topics([said("a"), metadata]) is None


def test_of_more_topics_than_are_kept_none_is_known() -> None:
    half = [f"a{number}" for number in range(MAX_TOPICS // 2)]
    other = [f"b{number}" for number in range(MAX_TOPICS // 2)]
    assert subscribed_topics([said(*half), said(*half), said(*other)]) == frozenset(half + other)
    assert subscribed_topics([said(*half), said(*other), said("c")]) is None
