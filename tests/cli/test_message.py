"""Single messages by their place."""

import json
from collections.abc import Callable

import pytest
from click.testing import Result

from penstock.cli.message import Place, find, parse_place, size_of
from penstock.client.cluster.cluster import Cluster
from penstock.client.errors import CorruptBatchError, MissingMessageError
from penstock.protocol.control import ControlType, build_end_marker
from penstock.protocol.records import NewRecord, Record, build
from penstock.protocol.schemas.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from tests.client.peer import Peer, peer
from tests.hostile import poison
from tests.waiting import in_loop

Call = Callable[..., Result]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("orders-0@42", Place("orders", 0, 42)),
        ("my-topic-12@0", Place("my-topic", 12, 0)),
        ("a-1-2@3", Place("a-1", 2, 3)),
        ("a@b-0@1", Place("a@b", 0, 1)),
    ],
)
def test_a_place_is_topic_partition_and_offset(text: str, place: Place) -> None:
    assert parse_place(text) == place


@pytest.mark.parametrize(
    "text", ["orders", "orders@1", "orders-0", "orders-x@1", "orders-0@-1", "-0@1", "orders-0@1 ", "o-٣@1"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="TOPIC-PARTITION@OFFSET"):
        parse_place(text)


def test_a_message_is_shown_with_all_that_belongs_to_it(cli: Call, topic: str) -> None:
    cli("produce", topic, "-K", ":", "-H", "via=web", "-z", "gzip", input="a:1\nb:22\nc:3\n")
    shown = cli("message", "get", f"{topic}-0@1").stdout
    fields = dict(line.split("  ", 1) for line in shown.splitlines())
    assert {name: value.strip() for name, value in fields.items()}.items() >= {
        "topic": topic,
        "partition": "0",
        "offset": "1",
        "key": "b",
        "value": "22",
        "size": "9 B",
        "header via": "web",
    }.items()
    assert "offsets 0 to 2, 3 records, " in shown
    assert ", gzip\n" in shown


def test_the_name_of_a_header_is_not_obeyed_by_a_terminal(cli: Call, topic: str) -> None:
    cli("produce", topic, "-H", "\x1b[2J=web", input="a\n")
    assert r"header \x1b[2J  web" in cli("message", "get", f"{topic}-0@0").stdout


def test_json_has_the_same(cli: Call, topic: str) -> None:
    cli("produce", topic, input=b"\xff\n")
    told = json.loads(cli("message", "get", f"{topic}-0@0", "--output", "json").stdout)
    assert told["value_base64"] == "/w=="
    assert told["size"] == 1
    assert len(told["crc"]) == 8
    assert told["batch"]["base_offset"] == 0
    assert told["batch"]["codec"] == "none"


def test_a_message_that_is_not_there_brings_the_range(cli: Call, topic: str) -> None:
    empty = cli("message", "get", f"{topic}-0@0", exit_code=1)
    assert f"there is no message at offset 0: {topic}-0 is empty, and goes on at 0" in empty.stderr
    cli("produce", topic, input="0\n1\n2\n")
    cli("topic", "trim", "--yes", topic, "--before", "1")
    for offset in (0, 3, 99):
        missing = cli("message", "get", f"{topic}-0@{offset}", exit_code=1)
        assert f"there is no message at offset {offset}: {topic}-0 has offsets 1 to 2" in missing.stderr


def test_an_unknown_topic_or_partition_is_told(cli: Call, topic: str) -> None:
    assert f"did you mean {topic!r}" in cli("message", "get", f"{topic[:-1]}-0@0", exit_code=1).stderr
    assert "the topic has one partition" in cli("message", "get", f"{topic}-1@0", exit_code=1).stderr
    cli("message", "get", topic, exit_code=2)


def answer(broker: Peer, data: bytes) -> None:
    def fetch(request: FetchRequest) -> FetchResponse:
        (topic,) = request.topics
        partition = PartitionData(partition_index=0, high_watermark=10, records=data)
        return FetchResponse(
            responses=[FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[partition])]
        )

    broker.answers[FetchRequest] = fetch


@in_loop
async def test_a_message_that_compaction_took_is_told() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        kept = build([NewRecord(b"a"), NewRecord(b"c")], base_offset=4, offset_deltas=[0, 2], last_offset_delta=2)
        answer(broker, bytes(kept))
        assert (await find(cluster, Place("orders", 0, 6))).record.value == b"c"
        with pytest.raises(MissingMessageError, match="compacted away"):
            await find(cluster, Place("orders", 0, 5))


@in_loop
async def test_the_end_of_a_transaction_is_no_message() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        marker = build_end_marker(
            ControlType.ABORT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=1, base_offset=5
        )
        answer(broker, bytes(marker))
        with pytest.raises(MissingMessageError, match="the end of a transaction"):
            await find(cluster, Place("orders", 0, 5))


@in_loop
async def test_a_message_in_a_batch_that_cannot_be_read_is_not_shown() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        answer(broker, poison.count_too_low())
        with pytest.raises(CorruptBatchError, match=r"orders-0: the batch at offset 0 cannot .* from offset 2 on"):
            await find(cluster, Place("orders", 0, 0))


def test_the_size_is_that_of_key_value_and_headers() -> None:
    assert size_of(Record(0, 0, b"key", b"value", (("ä", b"1"), ("b", None)))) == 3 + 5 + 3 + 1
    assert size_of(Record(0, 0, None, None)) == 0
