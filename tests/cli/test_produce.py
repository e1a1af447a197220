"""Lines that become messages of a real broker."""

import os
import random
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import Result

from penstock.cli.lines import LineFormat
from penstock.cli.produce import ACKS, CODECS, Production, chooser
from penstock.client.cluster import Cluster
from penstock.client.errors import BrokerError, UnknownPartitionError
from penstock.client.metadata import Partition, Topic
from penstock.client.producing import Acks
from penstock.machines.partitioners import partition_of_key
from penstock.protocol.compression import Codec
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.records import NewRecord
from penstock.protocol.schemas.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.client.peer import in_loop, peer, topic_id

Call = Callable[..., Result]


def test_every_line_is_a_message(cli: Call, topic: str) -> None:
    result = cli("produce", topic, input=b"one\n\nt\xffwo\x00\r\nlast")
    assert result.stdout == ""
    assert result.stderr.startswith(f"sent 4 messages (13 B) to {topic} in ")
    assert cli("consume", topic, "--format", "[%s]").stdout_bytes == b"[one][][t\xffwo\x00\r][last]"


def test_no_lines_are_no_messages(cli: Call, topic: str) -> None:
    assert cli("produce", topic, input=b"").stderr.startswith("sent 0 messages")


def test_keys_headers_and_nulls(cli: Call, topic: str) -> None:
    cli("produce", topic, "-K", r"\t", "--null", "-", "-H", "a=1", "-H", "b=x=y", input="k\tv\nk\t-\n-\tv\nv\n")
    shown = cli("consume", topic, "--format", r"%k(%K) %s(%S) %h\n").stdout
    assert shown.splitlines() == [
        "k(1) v(1) a=1,b=x=y",
        "k(1) (-1) a=1,b=x=y",
        "(-1) v(1) a=1,b=x=y",
        "(-1) v(1) a=1,b=x=y",
    ]


def test_files_come_one_after_the_other(cli: Call, topic: str, tmp_path: Path) -> None:
    (tmp_path / "first").write_text("1\n2")
    (tmp_path / "second").write_text("3\n")
    cli("produce", topic, str(tmp_path / "first"), "-", str(tmp_path / "second"), input="between")
    assert cli("consume", topic).stdout == "1\n2\nbetween\n3\n"
    cli("produce", topic, str(tmp_path / "third"), exit_code=2)


def test_much_input_arrives_whole_and_in_order(cli: Call, topic: str, tmp_path: Path) -> None:
    data = b"".join(b"%d:%s\n" % (number, b"x" * (number % 300)) for number in range(20_000))
    (tmp_path / "lines").write_bytes(data)
    assert cli("produce", topic, str(tmp_path / "lines")).stderr.startswith("sent 20,000 messages")
    assert cli("consume", topic).stdout_bytes == data


def test_equal_keys_go_where_other_clients_send_them(cli: Call) -> None:
    cli("topic", "create", "keyed", "--partitions", "5")
    cli("produce", "keyed", "-K", ":", input="".join(f"key{number}:{number}\n" for number in range(50)))
    shown = cli("consume", "keyed", "--format", r"%k %p\n").stdout.splitlines()
    placed = dict(line.split() for line in shown)
    assert placed == {f"key{number}": str(partition_of_key(b"key%d" % number, 5)) for number in range(50)}


def test_a_partition_can_be_wished_for(cli: Call) -> None:
    cli("topic", "create", "wished", "--partitions", "3")
    cli("produce", "wished", "-K", ":", "--partition", "2", input="a:1\nb:2\n")
    assert cli("consume", "wished", "--format", r"%p %s\n").stdout == "2 1\n2 2\n"
    missing = cli("produce", "wished", "--partition", "3", input="x\n", exit_code=1)
    assert "the topic has 3 partitions" in missing.stderr
    assert "sent" not in missing.stderr


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("acks", ACKS)
def test_codecs_and_acks(cli: Call, topic: str, codec: str, acks: str) -> None:
    data = "".join(f"line {number}\n" for number in range(100))
    cli("produce", topic, "--codec", codec, "--acks", acks, input=data)
    # With acks=0 nobody has said that all is there: read until it is.
    assert cli("consume", topic, "--follow", "--count", "100").stdout == data
    assert f", {codec}\n" in cli("message", "get", f"{topic}-0@5").stdout


def test_the_choices_are_those_that_the_client_has() -> None:
    assert [Codec[codec.upper()] for codec in CODECS] == list(Codec)
    assert {Acks[name] for name in ACKS.values()} == set(Acks)


def test_batches_that_a_topic_finds_too_large_are_divided(cli: Call) -> None:
    cli("topic", "create", "small", "--partitions", "1", "-c", "max.message.bytes=2000")
    data = "".join(f"{number:0100}\n" for number in range(500))
    assert cli("produce", "small", input=data).stderr.startswith("sent 500 messages")
    assert cli("consume", "small").stdout == data


def test_a_message_too_large_is_refused_and_what_was_sent_is_told(cli: Call) -> None:
    cli("topic", "create", "tiny", "--partitions", "1", "-c", "max.message.bytes=500")
    result = cli("produce", "tiny", input="fits\n" + "x" * 1000 + "\nnever sent\n", exit_code=1)
    assert "sent 1 message (4 B)" in result.stderr
    assert "MESSAGE_TOO_LARGE" in result.stderr
    assert cli("consume", "tiny").stdout == "fits\n"


@in_loop
async def test_a_failure_is_told_though_no_more_lines_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cli.produce.IDLE_SECONDS", 0.001)
    read_end, write_end = os.pipe()
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        broker.answers[ProduceRequest] = lambda _: ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name="orders",
                    topic_id=topic_id("orders"),
                    partition_responses=[
                        PartitionProduceResponse(index=0, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                    ],
                )
            ]
        )
        with open(read_end, "rb", buffering=0) as stream:
            production = Production(
                "orders", [stream], LineFormat(), partition=None, acks=Acks.ALL, codec=Codec.NONE, total=None
            )
            os.write(write_end, b"a line\n")
            with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
                await production.run(cluster)
            os.close(write_end)


def test_an_unknown_topic_brings_the_near_name(cli: Call, topic: str) -> None:
    result = cli("produce", topic[:-1], input="x\n", exit_code=1)
    assert f"did you mean {topic!r}" in result.stderr


def test_an_empty_separator_is_refused(cli: Call, topic: str) -> None:
    assert "may not be empty" in cli("produce", topic, "-K", "", input="x\n", exit_code=2).stderr


def test_lines_are_sent_as_they_come(cli: Call, topic: str, program: Callable[..., "subprocess.Popen[bytes]"]) -> None:
    producer = program("produce", topic, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert producer.stdin is not None
    for number in range(3):
        producer.stdin.write(b"%d\n" % number)
        producer.stdin.flush()
        shown = cli("consume", topic, "--follow", "--offset", str(number), "--count", "1").stdout
        assert shown == f"{number}\n"
    producer.stdin.close()
    assert producer.wait(30) == 0


def topic_of(*leaders: int) -> Topic:
    partitions = (Partition(index, leader, 0, (0,), (0,)) for index, leader in enumerate(leaders))
    return Topic("orders", bytes(16), False, tuple(partitions))


def test_without_keys_a_batch_fills_before_the_next_partition_has_its_turn() -> None:
    random.seed(1)
    choose = chooser(topic_of(0, 0, 0), None)
    chosen = [choose(NewRecord(b"x" * 100_000)) for _ in range(60)]
    assert set(chosen) == {0, 1, 2}
    changes = sum(before != after for before, after in pairwise(chosen))
    assert changes < 15


def test_without_keys_partitions_without_a_leader_are_left_out() -> None:
    choose = chooser(topic_of(0, -1, 0), None)
    assert 1 not in {choose(NewRecord(b"x" * 1_000_000)) for _ in range(100)}


def test_a_partition_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UnknownPartitionError):
        chooser(topic_of(0), 1)
