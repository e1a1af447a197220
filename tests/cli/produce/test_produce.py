"""Lines that become messages of a real broker."""

import asyncio
import io
import json
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

import pytest
from click.testing import Result

from penstock.cli.produce.line_account import LineAccount
from penstock.cli.produce.lines import LineFormat
from penstock.cli.produce.produce import ACKS, BATCH_BYTES, CODECS, PARTITIONS_SHOWN, Production, largest_request
from penstock.client.cluster.cluster import Cluster
from penstock.client.errors import BrokerError, UnknownPartitionError
from penstock.client.settings import ProducerSettings, read_settings
from penstock.machines.partitioners import partition_of_key
from penstock.protocol.compression import Codec
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.configs import DescribeConfigsRequest, DescribeConfigsResponse, DescribeConfigsResult
from penstock.protocol.schemas.produce import ProduceRequest
from penstock.protocol.schemas.transactions import InitProducerIdRequest
from tests.client.peer import SILENCE, Peer, peer
from tests.client.produce_peer import Answer, Log
from tests.waiting import in_loop

Call = Callable[..., Result]


def test_every_line_is_a_message(cli: Call, topic: str) -> None:
    result = cli("produce", topic, input=b"one\n\nt\xffwo\x00\r\nlast")
    assert result.stdout == ""
    assert result.stderr.startswith(f"sent 4 messages (13 B) to {topic} in ")
    assert cli("consume", topic, "--format", "[%s]").stdout_bytes == b"[one][][t\xffwo\x00\r][last]"


def test_the_report_says_where_the_messages_are(cli: Call, topic: str) -> None:
    assert cli("produce", topic, input="a\n").stderr.rstrip().endswith(f" s: {topic}-0@0")
    assert cli("produce", topic, input="b\nc\n").stderr.rstrip().endswith(f" s: {topic}-0@1 to 2")
    cli("topic", "create", "reported", "-p", "12")
    for partition in range(2):
        cli("produce", "reported", "-p", str(partition), input="a\n")
    told = json.loads(cli("produce", "reported", "-p", "1", "-O", "json", input="b\nc\n").stdout)
    assert told.pop("seconds") >= 0
    assert told == {
        "topic": "reported",
        "messages": 2,
        "bytes": 2,
        "partitions": [{"partition": 1, "first_offset": 1, "last_offset": 2}],
    }
    keyed = "".join(f"{number}:v\n" for number in range(500))
    many = cli("produce", "reported", "-K", ":", input=keyed).stderr
    assert many.count("reported-") == PARTITIONS_SHOWN
    assert many.rstrip().endswith(" and in 4 more partitions")
    unknown = cli("produce", topic, "--acks", "0", input="x\n").stderr
    assert f"{topic}-0@" not in unknown, "with acks=0 no broker reports it"


def test_a_message_can_be_got_by_what_the_report_says(cli: Call, topic: str) -> None:
    place = cli("produce", topic, input="x\n").stderr.split()[-1]
    assert "value      x\n" in cli("message", "get", place).stdout


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


def test_a_key_can_be_given_to_all(cli: Call, topic: str) -> None:
    cli("produce", topic, "-k", "all", input="a\nb\n")
    cli("produce", topic, "--key", "others", "-K", ":", input="own:c\nd\n")
    assert cli("consume", topic, "-F", "%k=%s ").stdout == "all=a all=b own=c others=d "


def test_what_was_consumed_as_json_can_be_produced_again(cli: Call, topic: str) -> None:
    cli("produce", topic, "-K", ":", "-H", "trace=1", "--null", "-", input=b"k:naive\n\xff:\x00\xfe\nk:-\n\n")
    cli("topic", "create", "again", "-p", "1")
    written = cli("consume", topic, "-O", "json").stdout_bytes
    assert b"_base64" in written
    told = cli("produce", "again", "--input", "json", input=written).stderr
    assert told.startswith("sent 4 messages")
    assert cli("consume", "again", "-O", "json").stdout_bytes == written.replace(f'"{topic}"'.encode(), b'"again"'), (
        "keys, values, headers and timestamps are as they were"
    )
    cli("produce", "again", "-I", "json", "-H", "copy=2", input=b'{"value":"x"}\n')
    assert cli("consume", "again", "-o", "-1", "-F", "%h").stdout == "copy=2"


def test_options_for_lines_of_text_are_refused_with_json(cli: Call, topic: str) -> None:
    for option in ("--key", "--key-separator", "--null"):
        refused = cli("produce", topic, "-I", "json", option, "x", input="", exit_code=2)
        assert f"{option} is for lines of text" in refused.stderr


def test_a_line_that_is_no_message_is_named_and_those_before_it_are_sent(cli: Call, topic: str) -> None:
    refused = cli("produce", topic, "-I", "json", input='{"value":"a"}\n{"value":1}\n{"value":"c"}\n', exit_code=1)
    assert "sent 1 message (1 B)" in refused.stderr
    assert "Error: line 2 is no message: its value is neither a text nor null" in refused.stderr
    assert "to go on there: --from-line 2 with the same input" in refused.stderr
    assert cli("consume", topic).stdout == "a\n"


def test_a_run_that_broke_off_can_be_resumed_as_it_says(cli: Call, tmp_path: Path) -> None:
    cli("topic", "create", "resumed", "--partitions", "1", "-c", "max.message.bytes=3000000")
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("0\n")
    second.write_text("1\n" + "x" * 3_100_000 + "\n3\n4\n")
    broken = cli("produce", "resumed", str(first), str(second), exit_code=1).stderr
    assert "line 2 of " in broken
    advice = broken.rpartition("to go on there: ")[2].split()
    assert advice == ["--from-line", "2", str(second)]
    second.write_text("1\n2\n3\n4\n")
    assert "sent 3 messages" in cli("produce", "resumed", *advice).stderr
    assert cli("consume", "resumed").stdout == "0\n1\n2\n3\n4\n"


def test_lines_are_left_out_in_the_first_file_alone(cli: Call, topic: str, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text(f"{name}1\n{name}2\n{name}3")
    cli("produce", topic, "--from-line", "3", str(tmp_path / "a"), str(tmp_path / "b"))
    assert cli("consume", topic).stdout == "a3\nb1\nb2\nb3\n"
    cli("produce", topic, "--from-line", "9", str(tmp_path / "a"), str(tmp_path / "b"))
    assert cli("consume", topic, "-o", "4").stdout == "b1\nb2\nb3\n"


def test_a_topic_that_does_not_exist_is_made_on_demand(cli: Call) -> None:
    missing = cli("produce", "made-by-produce", input="x\n", exit_code=1).stderr
    assert "there is no such topic" in missing
    assert "--create makes it, or: penstock topic create made-by-produce" in missing
    made = cli("produce", "made-by-produce", "--create", input="x\n").stderr
    assert made.startswith("made topic made-by-produce\nsent 1 message")
    assert "made topic" not in cli("produce", "made-by-produce", "--create", input="y\n").stderr
    assert sorted(cli("consume", "made-by-produce").stdout.split()) == ["x", "y"]


def test_a_flag_wins_over_a_setting_and_a_setting_over_the_default(cli: Call, topic: str) -> None:
    cli("produce", topic, "-X", "compression.type=gzip", input="x\n")
    cli("produce", topic, "-X", "compression.type=gzip", "--codec", "lz4", input="x\n")
    assert ", gzip\n" in cli("message", "get", f"{topic}-0@0").stdout
    assert ", lz4\n" in cli("message", "get", f"{topic}-0@1").stdout


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
    given = [{"acks": acks, "enable.idempotence": acks == "all"} for acks in ACKS]
    assert [read_settings(ProducerSettings, each).acks_on_wire for each in given] == [0, 1, -1]


def test_batches_that_a_topic_finds_too_large_are_divided(cli: Call) -> None:
    cli("topic", "create", "small", "--partitions", "1", "-c", "max.message.bytes=2000")
    data = "".join(f"{number:0100}\n" for number in range(500))
    assert cli("produce", "small", input=data).stderr.startswith("sent 500 messages")
    assert cli("consume", "small").stdout == data


def test_a_message_too_large_is_refused_and_what_was_sent_is_told(cli: Call) -> None:
    cli("topic", "create", "tiny", "--partitions", "1", "-c", "max.message.bytes=500")
    result = cli("produce", "tiny", input="fits\n" + "x" * 1000 + "\nfits too\n", exit_code=1)
    assert "sent 2 messages (12 B)" in result.stderr
    assert "MESSAGE_TOO_LARGE" in result.stderr
    assert "more message" not in result.stderr
    assert "line 2 of standard input was not sent, all others were: send it by itself" in result.stderr
    assert cli("consume", "tiny").stdout == "fits\nfits too\n"


def test_it_is_told_how_many_failed(cli: Call) -> None:
    cli("topic", "create", "narrow", "--partitions", "1", "-c", "max.message.bytes=500")
    result = cli("produce", "narrow", input=("x" * 1000 + "\n") * 3, exit_code=1)
    assert "sent 0 messages" in result.stderr
    assert "; 2 more messages failed" in result.stderr


def test_a_line_larger_than_a_batch_keeps_its_place(cli: Call, topic: str) -> None:
    data = "".join(f"{line}\n" for line in ("before", "x" * (BATCH_BYTES + 1), "after"))
    cli("produce", topic, input=data)
    assert cli("consume", topic).stdout == data


def test_a_topic_that_takes_large_messages_gets_them(cli: Call) -> None:
    cli("topic", "create", "wide", "--partitions", "1", "-c", "max.message.bytes=3000000")
    assert cli("produce", "wide", input="x" * 2_900_000).stderr.startswith("sent 1 message ")
    refused = cli("produce", "wide", input="small\n" + "x" * 3_100_000 + "\nnever read", exit_code=1)
    assert "sent 1 message (5 B)" in refused.stderr
    assert "raise it and the topic's max.message.bytes" in refused.stderr


def test_the_bytes_are_those_of_keys_values_and_headers(cli: Call, topic: str) -> None:
    result = cli("produce", topic, "-K", ":", "-H", "name=1", "--null", "-", input="key:value\n-:-\n")
    assert result.stderr.startswith(f"sent 2 messages ({3 + 5 + 2 * (4 + 1)} B)")


@in_loop
async def test_more_than_the_buffer_holds_is_sent_in_turns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("penstock.cli.produce.produce.BUFFER_BYTES", 0)
    # The buffer holds two requests then.
    monkeypatch.setattr("penstock.cli.produce.produce.largest_request", small_request)
    lines = [b"%d" % number for number in range(20_000)]
    (tmp_path / "lines").write_bytes(b"\n".join(lines))
    log = Log()
    async with log_peer(log) as broker, Cluster(broker.address) as cluster:
        with open(tmp_path / "lines", "rb", buffering=0) as stream:
            await production(broker, stream).run(cluster)
    assert log.records[("orders", 0)] == lines


async def small_request(*_: object) -> int:
    return 10_000


@in_loop
async def test_a_failure_is_told_though_no_more_lines_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cli.produce.produce.IDLE_SECONDS", 0.001)
    read_end, write_end = os.pipe()
    log = Log(Answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    async with log_peer(log) as broker, Cluster(broker.address) as cluster:
        with open(read_end, "rb", buffering=0) as stream:
            os.write(write_end, b"a line\n")
            with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
                await production(broker, stream).run(cluster)
            os.close(write_end)


@in_loop
async def test_what_is_under_way_is_given_up_when_the_user_interrupts(capsys: pytest.CaptureFixture[str]) -> None:
    read_end, write_end = os.pipe()
    log = Log(lambda _: SILENCE)
    async with log_peer(log) as broker, Cluster(broker.address) as cluster:
        broker.answers[ProduceRequest] = lambda _: SILENCE
        with open(read_end, "rb", buffering=0) as stream:
            os.write(write_end, b"a line\n")
            run = production(broker, stream)
            running = asyncio.create_task(run.run(cluster))
            await broker.until(lambda: len(broker.requests(ProduceRequest)) == 1)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            os.close(write_end)
    run.tell()
    told = capsys.readouterr().err
    assert told.startswith("sent 0 messages")
    assert "line 1 of standard input was not sent, nor any after it" in told


@pytest.mark.parametrize(("acks", "on_wire"), [("0", 0), ("1", 1), ("all", -1)])
@in_loop
async def test_the_broker_hears_what_to_wait_for(acks: str, on_wire: int) -> None:
    log = Log()
    async with log_peer(log) as broker, Cluster(broker.address) as cluster:
        await production(broker, io.BytesIO(b"a\nb\n"), settings={"acks": acks}).run(cluster)
        await broker.until(lambda: ("orders", 0) in log.records)
        assert [request.acks for request in broker.requests(ProduceRequest)] == [on_wire]
        # Only with all acknowledgements the batch has the numbers by which brokers recognise duplicates.
        assert [batch.sequence for batch in log.batches] == [0 if acks == "all" else -1]
    assert log.records[("orders", 0)] == [b"a", b"b"]


@in_loop
async def test_a_topic_whose_configs_may_not_be_seen_gets_requests_of_the_usual_size() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        broker.answers[DescribeConfigsRequest] = lambda _: DescribeConfigsResponse(
            results=[
                DescribeConfigsResult(
                    error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, resource_type=2, resource_name="orders"
                )
            ]
        )
        assert await largest_request(cluster, "orders") == ProducerSettings().max_request_size


@in_loop
async def test_a_partition_that_does_not_exist_is_refused() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        with pytest.raises(UnknownPartitionError):
            await production(broker, io.BytesIO(b"x"), partition=1).run(cluster)
        assert not broker.requests(ProduceRequest)


@asynccontextmanager
async def log_peer(log: Log) -> AsyncIterator[Peer]:
    async with peer(orders=[0]) as broker:
        broker.answers[ProduceRequest] = log.produce
        broker.answers[InitProducerIdRequest] = log.begin
        broker.answers[DescribeConfigsRequest] = lambda _: DescribeConfigsResponse(results=[])
        yield broker


def production(
    broker: Peer, stream: IO[bytes], *, partition: int | None = None, settings: Mapping[str, str] | None = None
) -> Production:
    client = {"bootstrap.servers": broker.address, **(settings or {})}
    return Production("orders", [stream], LineFormat(), client=client, account=LineAccount(["-"]), partition=partition)


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


def test_without_keys_a_batch_fills_before_the_next_partition_has_its_turn(cli: Call) -> None:
    cli("topic", "create", "sticky", "--partitions", "3")
    cli("produce", "sticky", input="".join(f"{number}\n" for number in range(100)))
    assert len(set(cli("consume", "sticky", "--format", r"%p\n").stdout.split())) == 1
    cli("produce", "sticky", input=("x" * 100_000 + "\n") * 200)
    assert set(cli("consume", "sticky", "--format", r"%p\n").stdout.split()) == {"0", "1", "2"}
