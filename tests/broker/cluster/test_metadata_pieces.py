"""Pieces of replies to Metadata: the bytes of the ordinary encoder, made once, and gone when their topic changes."""

from collections.abc import Generator
from typing import Any

import pytest

from penstock.broker.cluster.metadata_pieces import MetadataPieces, Piece, flawed, make_piece, write_reply
from penstock.machines.cluster import ImageChange, TopicImage
from penstock.protocol.apis import api
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from penstock.protocol.session import Request, write_response

FIRST, SECOND = b"1" * 16, b"2" * 16


def topic(name: str = "orders", topic_id: bytes = FIRST, count: int = 3, code: int = 0) -> MetadataResponseTopic:
    partitions = [
        MetadataResponsePartition(error_code=code, partition_index=index, leader_id=1, replica_nodes=[1], isr_nodes=[1])
        for index in range(count)
    ]
    return MetadataResponseTopic(name=name, topic_id=topic_id, partitions=partitions)


def made(steps: Generator[None, None, Piece]) -> tuple[Piece, int]:
    """A piece, and the number of stops on the way to it."""
    stops = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, stops
        stops += 1


def request(version: int) -> Any:
    return Request(api(3), version, 7, "client", memoryview(b""))


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize("count", [0, 1, 200])
def test_a_reply_of_pieces_has_the_bytes_of_the_ordinary_one(version: int, count: int) -> None:
    topics = [topic(f"orders-{number}", count=number % 3) for number in range(count)]
    brokers = [MetadataResponseBroker(node_id=1, host="a", port=9092, rack="r")]
    whole = MetadataResponse(brokers=brokers, cluster_id="c", controller_id=1, topics=topics)
    around = MetadataResponse(brokers=brokers, cluster_id="c", controller_id=1)
    pieces = [made(make_piece(each, version))[0] for each in topics]
    call = request(version)
    assert b"".join(write_reply(call, around, pieces)) == b"".join(write_response(call, whole, version))


def test_a_wide_topic_is_encoded_in_slices() -> None:
    assert made(make_piece(topic(count=5), 12))[1] == 0
    assert made(make_piece(topic(count=5000), 12))[1] > 1


def test_errors_of_a_topic_and_of_partitions_are_there_to_be_counted() -> None:
    sound, _ = made(make_piece(topic(), 12))
    leaderless, _ = made(make_piece(topic(code=ErrorCode.LEADER_NOT_AVAILABLE), 12))
    unknown, _ = made(make_piece(MetadataResponseTopic(error_code=3, name="x"), 12))
    found = flawed([sound, leaderless, unknown])
    assert [(each.error_code, len(each.partitions)) for each in found] == [(0, 3), (3, 0)]


def test_a_piece_goes_when_its_topic_changes_or_is_deleted_and_others_stay() -> None:
    pieces = MetadataPieces()
    for topic_id in (FIRST, SECOND):
        for version in (9, 12):
            pieces.keep(topic_id, version, made(make_piece(topic(topic_id=topic_id), version))[0], drops=0)
    pieces.image_changed(ImageChange(configs=True))
    assert pieces.get(FIRST, 12) is not None
    pieces.image_changed(ImageChange(partitions={FIRST: {2}}))
    assert (pieces.get(FIRST, 9), pieces.get(FIRST, 12)) == (None, None)
    assert pieces.get(SECOND, 12) is not None
    pieces.image_changed(ImageChange(deleted={"orders": TopicImage(SECOND, "orders", [], {})}))
    assert pieces.get(SECOND, 12) is None
    assert pieces._bytes == 0


def test_a_piece_that_was_begun_before_a_change_is_not_kept() -> None:
    pieces = MetadataPieces()
    drops = pieces.drops
    piece, _ = made(make_piece(topic(), 12))
    pieces.image_changed(ImageChange(partitions={FIRST: {0}}))
    pieces.keep(FIRST, 12, piece, drops=drops)
    assert pieces.get(FIRST, 12) is None


def test_pieces_take_a_bounded_amount_of_memory() -> None:
    piece, _ = made(make_piece(topic(), 12))
    pieces = MetadataPieces(max_bytes=3 * len(piece.data))
    for number in range(10):
        pieces.keep(bytes([number]) * 16, 12, piece, drops=0)
    assert [number for number in range(10) if pieces.get(bytes([number]) * 16, 12)] == [7, 8, 9]
