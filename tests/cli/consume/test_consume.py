"""Messages of a real broker on standard output; and of one that a test makes difficult."""

import io
import json
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

from penstock.cli.consume.consume import Reading
from penstock.cli.consume.printing import Printer
from penstock.cli.formatting import compile_format
from penstock.cli.positions import Kind, Position
from penstock.client.cluster.cluster import Cluster
from penstock.client.errors import BrokerError, CorruptBatchError
from penstock.protocol.batch import stamp
from penstock.protocol.control import ControlType, build_end_marker
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.records import NewRecord, build
from penstock.protocol.schemas.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from penstock.protocol.schemas.offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.client.peer import Peer, peer
from tests.hostile import poison
from tests.waiting import in_loop

Call = Callable[..., Result]


@pytest.fixture
def filled(cli: Call, topic: str) -> str:
    cli("produce", topic, input="0\n1\n2\n3\n4\n")
    return topic


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], "01234"),
        (["--offset", "beginning"], "01234"),
        (["--offset", "end"], ""),
        (["--offset", "3"], "34"),
        (["--offset", "-2"], "34"),
        (["--offset", "-99"], "01234"),
        (["--offset", "-0"], ""),
        (["--count", "2"], "01"),
        (["--offset", "-3", "--count", "2"], "23"),
        (["--offset", "@0"], "01234"),
        (["--offset", "@2100-01-01"], ""),
        (["--follow", "--count", "5"], "01234"),
    ],
)
def test_where_to_begin_and_where_to_end(cli: Call, filled: str, options: list[str], expected: str) -> None:
    assert cli("consume", filled, *options).stdout.split() == list(expected)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--until", "2"], "01"),
        (["--until", "0"], ""),
        (["--until", "99"], "01234"),
        (["--until", "@2100-01-01"], "01234"),
        (["--until", "-1h"], ""),
        (["--offset", "1", "--until", "3"], "12"),
        (["--offset", "3", "--until", "2"], ""),
    ],
)
def test_until_says_where_to_end(cli: Call, filled: str, options: list[str], expected: str) -> None:
    assert cli("consume", filled, *options).stdout.split() == list(expected)


def test_until_and_follow_contradict_each_other(cli: Call, filled: str) -> None:
    assert "leave one of them out" in cli("consume", filled, "--until", "2", "--follow", exit_code=2).stderr
    cli("consume", filled, "--until", "end", exit_code=2)


def test_messages_can_be_chosen_by_key(cli: Call, topic: str) -> None:
    cli("produce", topic, "-K", ":", input="a:1\nb:2\na:3\nno key\n:5\n")
    assert cli("consume", topic, "--key", "a").stdout == "1\n3\n"
    assert cli("consume", topic, "-k", "a", "--count", "1").stdout == "1\n"
    assert cli("consume", topic, "--key", "").stdout == "5\n"
    assert cli("consume", topic, "--key", "c").stdout == ""


def test_several_topics_are_read_together(cli: Call, filled: str) -> None:
    cli("topic", "create", "beside", "-p", "2")
    for partition in "01":
        cli("produce", "beside", "-p", partition, input=f"{partition}\n")
    shown = cli("consume", filled, "beside", "--format", r"%t-%p@%o=%s\n").stdout.split()
    assert sorted(shown) == sorted([*(f"{filled}-0@{n}={n}" for n in range(5)), "beside-0@0=0", "beside-1@0=1"])
    told = cli("consume", filled, "beside", "-O", "json").stdout.splitlines()
    assert {json.loads(line)["topic"] for line in told} == {filled, "beside"}
    assert "did you mean 'beside'" in cli("consume", filled, "besid", exit_code=1).stderr
    cli("consume", exit_code=2)


def test_a_time_is_where_its_message_is(cli: Call, topic: str) -> None:
    cli("produce", topic, input="before\n")
    first = int(cli("consume", topic, "--format", "%T").stdout)
    later = first
    while later == first:
        cli("topic", "trim", "--yes", topic, "--before", "1")
        cli("produce", topic, input="after\n")
        later = int(cli("consume", topic, "--format", "%T", "--offset", "-1").stdout)
    assert cli("consume", topic, "--offset", f"@{later}").stdout == "after\n"


def test_an_offset_that_is_not_there_is_told_and_the_nearest_taken(cli: Call, filled: str) -> None:
    cli("topic", "trim", "--yes", filled, "--before", "2")
    early = cli("consume", filled, "--offset", "1")
    assert early.stdout.split() == ["2", "3", "4"]
    assert f"{filled}-0 has offsets from 2 to 5: reading from 2" in early.stderr
    assert cli("consume", filled, "--offset", "9").stdout == ""


def test_partitions_can_be_chosen(cli: Call) -> None:
    cli("topic", "create", "chosen", "--partitions", "3")
    for partition in "012":
        cli("produce", "chosen", "--partition", partition, input=f"in {partition}\n")
    assert sorted(cli("consume", "chosen").stdout.splitlines()) == ["in 0", "in 1", "in 2"]
    assert sorted(cli("consume", "chosen", "-p", "2", "-p", "0", "-p", "2").stdout.splitlines()) == ["in 0", "in 2"]
    assert "the topic has 3 partitions" in cli("consume", "chosen", "-p", "3", exit_code=1).stderr


def test_json_is_an_object_a_line(cli: Call, topic: str) -> None:
    cli("produce", topic, "-K", ":", "-H", "via=web", input=b"k:v\n\xff:\xfe\n")
    lines = [json.loads(line) for line in cli("consume", topic, "--output", "json").stdout.splitlines()]
    assert [line["offset"] for line in lines] == [0, 1]
    assert (lines[0]["key"], lines[0]["value"], lines[0]["headers"]) == ("k", "v", [{"name": "via", "value": "web"}])
    assert (lines[1]["key_base64"], lines[1]["value_base64"]) == ("/w==", "/g==")


def test_wrong_formats_are_wrong_usage(cli: Call, topic: str) -> None:
    assert "%z is no token" in cli("consume", topic, "--format", "%z", exit_code=2).stderr
    both = cli("consume", topic, "--format", "%s", "--output", "json", exit_code=2)
    assert "exclude each other" in both.stderr
    assert "none of: beginning, end" in cli("consume", topic, "--offset", "start", exit_code=2).stderr


def test_the_help_names_every_token(cli: Call) -> None:
    shown = cli("consume", "--help").stdout
    assert "%T          timestamp in milliseconds" in shown


def test_an_unknown_topic_brings_the_near_name(cli: Call, topic: str) -> None:
    assert f"did you mean {topic!r}" in cli("consume", topic[:-1], exit_code=1).stderr


def test_following_shows_what_comes_until_ctrl_c(
    cli: Call, filled: str, program: Callable[..., "subprocess.Popen[bytes]"]
) -> None:
    consumer = program("consume", filled, "--follow", "--offset", "-1", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert consumer.stdout is not None
    assert consumer.stderr is not None
    assert consumer.stdout.readline() == b"4\n"
    cli("produce", filled, input="5\n")
    assert consumer.stdout.readline() == b"5\n"
    consumer.send_signal(signal.SIGINT)
    assert consumer.wait(30) == 0
    assert consumer.stderr.read() == b""


class Script:
    """Fetches answered one after the other, the last again and again, for partitions from `start` to `end`."""

    def __init__(self, broker: Peer, *answers: dict[int, bytes | ErrorCode], start: int = 0, end: int = 10) -> None:
        self.broker = broker
        self.answers = list(answers)
        self.offsets = {-2: start, -1: end}
        broker.answers[FetchRequest] = self.fetch
        broker.answers[ListOffsetsRequest] = self.list_offsets

    def fetch(self, request: FetchRequest) -> FetchResponse:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        (topic,) = request.topics
        partitions = []
        for each in topic.partitions:
            told = answer.get(each.partition, b"")
            data: dict[str, Any] = {"error_code": told} if isinstance(told, ErrorCode) else {"records": told}
            partitions.append(PartitionData(partition_index=each.partition, high_watermark=self.offsets[-1], **data))
        return FetchResponse(
            responses=[FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=partitions)]
        )

    def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=each.partition_index, offset=self.offsets[each.timestamp]
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def fetched_from(self) -> list[dict[int, int]]:
        return [
            {each.partition: each.fetch_offset for topic in request.topics for each in topic.partitions}
            for request in self.broker.requests(FetchRequest)
        ]


def batch(base_offset: int, *values: bytes, **options: Any) -> bytes:
    return bytes(build([NewRecord(value, timestamp=1000) for value in values], base_offset=base_offset, **options))


async def read(cluster: Cluster, **options: Any) -> bytes:
    sink = io.BytesIO()
    settings = {"follow": False} | options
    await Reading(printer(sink, settings.pop("count", None)), [], Position(Kind.BEGINNING), **settings).run(cluster)
    return sink.getvalue()


def printer(sink: io.BytesIO, count: int | None = None) -> Printer:
    return Printer({"orders": compile_format("%p@%o=%s ", "orders")}, count=count, sink=sink)


@in_loop
async def test_what_comes_after_it_began_is_left_out() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        Script(broker, {0: batch(0, b"a", b"b", b"c")}, end=2)
        assert await read(cluster) == b"0@0=a 0@1=b "


@in_loop
async def test_offsets_without_a_record_do_not_keep_it_waiting() -> None:
    marker = build_end_marker(
        ControlType.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=1, base_offset=1
    )
    async with peer(orders=[0, 0]) as broker, Cluster(broker.address) as cluster:
        script = Script(broker, {0: batch(0, b"a") + bytes(marker), 1: batch(0, b"x")}, {})
        assert await read(cluster) == b"0@0=a 1@0=x "
        assert script.fetched_from() == [{0: 0, 1: 0}, {0: 2, 1: 1}]


@in_loop
async def test_a_partition_that_was_read_goes_to_the_end_of_the_row() -> None:
    async with peer(orders=[0, 0]) as broker, Cluster(broker.address) as cluster:
        script = Script(
            broker, {0: batch(0, b"a")}, {1: batch(0, b"x")}, {0: batch(1, b"b")}, {1: batch(1, b"y")}, end=2
        )
        assert await read(cluster) == b"0@0=a 1@0=x 0@1=b 1@1=y "
        assert [list(fetched) for fetched in script.fetched_from()] == [[0, 1], [1, 0], [0, 1], [1]]


@in_loop
async def test_retention_that_is_faster_than_the_reader_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        script = Script(broker, {0: batch(0, b"a")}, {0: ErrorCode.OFFSET_OUT_OF_RANGE}, {0: batch(9, b"z")})
        original = script.fetch

        def fetch(request: FetchRequest) -> FetchResponse:
            if len(script.answers) == 2:
                script.offsets[-2] = 9
            return original(request)

        broker.answers[FetchRequest] = fetch
        assert await read(cluster) == b"0@0=a 0@9=z "
    assert "orders-0: offset 1 is gone, going on at 9" in capsys.readouterr().err


@in_loop
async def test_another_error_ends_it_after_what_was_read() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        Script(broker, {0: batch(0, b"a")}, {0: ErrorCode.TOPIC_AUTHORIZATION_FAILED})
        with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
            await read(cluster)


def poisoned(offset: int) -> bytes:
    data = bytearray(poison.broken_lz4())
    stamp(data, offset, 0)
    return bytes(data)


@in_loop
async def test_a_batch_that_cannot_be_read_ends_it_after_what_was_read_and_says_how_to_go_on() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        Script(broker, {0: batch(0, b"a") + poisoned(1) + batch(4, b"b")}, end=5)
        sink = io.BytesIO()
        told = (
            "orders-0: the batch at offset 1 cannot be read: the lz4 data is damaged: .*; "
            "give --partition 0 --offset 4 to go on after it, or --on-corrupt skip"
        )
        shown = printer(sink)
        with pytest.raises(CorruptBatchError, match=told):
            await Reading(shown, [], Position(Kind.BEGINNING), follow=False).run(cluster)
        shown.flush()
        assert sink.getvalue() == b"0@0=a "


@in_loop
async def test_a_batch_that_cannot_be_read_is_passed_over_and_told_if_that_is_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        Script(broker, {0: batch(0, b"a") + poisoned(1) + batch(4, b"b")}, end=5)
        assert await read(cluster, skips_corrupt=True) == b"0@0=a 0@4=b "
    assert "orders-0: the batch at offset 1 cannot be read" in capsys.readouterr().err


@in_loop
async def test_a_count_ends_in_the_middle_of_a_batch() -> None:
    async with peer(orders=[0, 0]) as broker, Cluster(broker.address) as cluster:
        Script(broker, {0: batch(0, b"a", b"b", b"c"), 1: batch(0, b"x")})
        assert await read(cluster, count=2) == b"0@0=a 0@1=b "
        assert await read(cluster, count=4, follow=True) == b"0@0=a 0@1=b 0@2=c 1@0=x "


@in_loop
async def test_much_is_written_in_pieces() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        value = b"v" * 100_000
        Script(broker, {0: batch(0, *[value] * 10)})
        assert (await read(cluster)).count(value) == 10
