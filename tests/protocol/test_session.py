"""Both ends of a connection, in memory."""

import tracemalloc
from collections import deque
from collections.abc import Generator
from random import Random
from typing import Any

import pytest

from penstock.protocol.apis import all_apis, api
from penstock.protocol.codec import decode, encode
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.errors import DecodeError, EncodeError
from penstock.protocol.framing import frame
from penstock.protocol.schema import Message
from penstock.protocol.schemas.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from penstock.protocol.schemas.groups import HeartbeatRequest, HeartbeatResponse, LeaveGroupResponse, MemberResponse
from penstock.protocol.schemas.headers import RequestHeader, ResponseHeader
from penstock.protocol.schemas.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from penstock.protocol.schemas.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from penstock.protocol.schemas.versions import ApiVersion, ApiVersionsResponse
from penstock.protocol.session import ClientSession, Request, ServerSession, write_response, write_response_in_slices
from tests.protocol.messages import random_message, versions_of


def joined(chunks: list[Any]) -> bytes:
    return b"".join(chunks)


def sent(client: ClientSession, message: Message, version: int) -> bytes:
    _, chunks = client.send(message, version)
    return joined(chunks)


def framed(*parts: bytes) -> bytes:
    return joined(frame(parts))


def request_bytes(key: int, version: int, correlation_id: int, rest: bytes) -> bytes:
    header = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True)
    return framed(header, correlation_id.to_bytes(4, "big"), rest)


def test_a_request_comes_with_its_header_and_is_decoded_when_asked() -> None:
    client, server = ClientSession("me"), ServerSession(Request)
    heartbeat = HeartbeatRequest(group_id="g", generation_id=3, member_id="m")
    (request,) = server.receive(sent(client, heartbeat, 4))
    assert (request.api, request.version, request.correlation_id, request.client_id) == (api(12), 4, 0, "me")
    assert request.is_supported
    assert request.decode() == heartbeat


def test_bytes_that_are_just_one_request_are_taken_at_a_stroke_and_all_others_left_alone() -> None:
    client, server = ClientSession("me"), ServerSession(Request)
    first, second = (memoryview(sent(client, HeartbeatRequest(group_id="g"), 4)) for _ in range(2))
    request = server.receive_one(first)
    assert request is not None
    assert request.decode() == HeartbeatRequest(group_id="g")
    assert server.unanswered == 1
    both = memoryview(bytes(first) + bytes(second))
    assert server.receive_one(both) is None
    assert server.unanswered == 1
    assert len(server.receive(both[:-1])) == 1
    assert server.receive_one(second) is None, "the rest of another one comes first"


@pytest.mark.parametrize("version", [9, 13])
def test_all_topics_may_be_asked_for_as_librdkafka_does(version: int) -> None:
    wanted = MetadataRequest(topics=None, allow_auto_topic_creation=True)
    body = encode(wanted, version)
    assert body[:1] == b"\0"
    [request] = ServerSession(Request).receive(request_bytes(3, version, 0, b"\xff\xff\0" + bytes(3) + body))
    assert request.decode() == wanted
    [request] = ServerSession(Request).receive(request_bytes(3, version, 0, b"\xff\xff\0" + bytes(4) + body))
    with pytest.raises(DecodeError):
        request.decode()


def test_a_client_may_have_no_name() -> None:
    (request,) = ServerSession(Request).receive(sent(ClientSession(), HeartbeatRequest(), 0))
    assert request.client_id is None


def test_the_records_of_a_request_are_views_of_what_came() -> None:
    produce = ProduceRequest(topic_data=[TopicProduceData(partition_data=[PartitionProduceData(records=b"records")])])
    data = sent(ClientSession(), produce, 9)
    (request,) = ServerSession(Request).receive(data)
    decoded = request.decode()
    assert isinstance(decoded, ProduceRequest)
    records = decoded.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is data


def test_requests_beyond_those_asked_for_are_kept_for_later() -> None:
    client, server = ClientSession(), ServerSession(Request)
    data = b"".join(sent(client, HeartbeatRequest(generation_id=number), 4) for number in range(5))
    first = server.receive(data, 2)
    assert server.unanswered == 2
    then, last = server.more(2), server.more(2)
    assert [len(first), len(then), len(last)] == [2, 2, 1]
    assert [request.decode().generation_id for request in first + then + last] == [0, 1, 2, 3, 4]  # type: ignore[attr-defined]
    assert server.more(2) == []


class InAFile:
    """Stands for bytes that are sent from where they lie."""

    def __len__(self) -> int:
        return 7


def test_a_response_is_one_piece_but_for_what_lies_in_files() -> None:
    client, server = ClientSession(), ServerSession(Request)
    (request,) = server.receive(sent(client, MetadataRequest(), 12))
    [length, body] = server.answer(request, MetadataResponse(cluster_id="x"))
    assert int.from_bytes(length, "big") == len(body)
    (request,) = server.receive(sent(client, FetchRequest(), 12))
    in_files = [InAFile(), InAFile()]
    partitions = [PartitionData(partition_index=number, records=each) for number, each in enumerate(in_files)]
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])
    chunks = server.answer(request, response)
    assert [type(chunk) for chunk in chunks] == [bytes, bytes, InAFile, bytes, InAFile, bytes]
    assert [chunk for chunk in chunks if isinstance(chunk, InAFile)] == in_files
    assert int.from_bytes(chunks[0], "big") == sum(map(len, chunks[1:]))


def test_replies_leave_in_the_order_of_requests() -> None:
    client, server = ClientSession(), ServerSession(Request)
    data = b"".join(sent(client, HeartbeatRequest(generation_id=number), 4) for number in range(4))
    first, second, third, fourth = server.receive(data)
    assert server.unanswered == 4
    assert server.answer(third, HeartbeatResponse(throttle_time_ms=3)) == []
    assert server.answer(second, HeartbeatResponse(throttle_time_ms=2)) == []
    together = server.answer(first, HeartbeatResponse(throttle_time_ms=1))
    last = server.answer(fourth, HeartbeatResponse(throttle_time_ms=4))
    assert server.unanswered == 0
    replies = client.receive(joined(together)) + client.receive(joined(last))
    assert [reply.correlation_id for reply in replies] == [0, 1, 2, 3]
    assert [reply.response for reply in replies] == [HeartbeatResponse(throttle_time_ms=n) for n in (1, 2, 3, 4)]


def test_a_produce_request_without_acks_is_answered_by_silence() -> None:
    client, server = ClientSession(), ServerSession(Request)
    data = sent(client, ProduceRequest(acks=0), 9) + sent(client, HeartbeatRequest(), 4)
    assert client.awaited == 1
    produce, heartbeat = server.receive(data)
    held = server.answer(heartbeat, HeartbeatResponse(error_code=27))
    assert held == []
    released = server.answer(produce, None)
    (reply,) = client.receive(joined(released))
    assert (reply.correlation_id, reply.response) == (1, HeartbeatResponse(error_code=27))


def test_a_produce_request_with_acks_is_answered() -> None:
    client, server = ClientSession(), ServerSession(Request)
    (request,) = server.receive(sent(client, ProduceRequest(acks=-1), 9))
    assert client.awaited == 1
    (reply,) = client.receive(joined(server.answer(request, ProduceResponse(throttle_time_ms=5))))
    assert reply.response == ProduceResponse(throttle_time_ms=5)
    assert client.awaited == 0


def test_a_request_is_answered_once() -> None:
    server = ServerSession(Request)
    (request,) = server.receive(sent(ClientSession(), HeartbeatRequest(), 4))
    server.answer(request, HeartbeatResponse())
    with pytest.raises(AssertionError, match="a request is answered once"):
        server.answer(request, HeartbeatResponse())


def test_an_answer_that_cannot_be_written_leaves_the_request_open_for_another() -> None:
    client, server = ClientSession(), ServerSession(Request)
    (request,) = server.receive(sent(client, HeartbeatRequest(), 4))
    with pytest.raises(EncodeError):
        server.answer(request, HeartbeatResponse(error_code=1 << 20))
    assert server.unanswered == 1
    (reply,) = client.receive(joined(server.answer(request, HeartbeatResponse(error_code=-1))))
    assert reply.response == HeartbeatResponse(error_code=-1)


def test_an_abandoned_connection_hands_back_what_it_had_not_sent() -> None:
    client, server = ClientSession(), ServerSession(Request)
    first, second = server.receive(sent(client, HeartbeatRequest(), 4) + sent(client, HeartbeatRequest(), 4))
    server.answer(second, HeartbeatResponse())
    assert server.abandon() == [first, second]
    assert server.unanswered == 0


@pytest.mark.parametrize("key", [-1, 4, 55, 32767])
def test_an_unknown_api_key_ends_the_connection(key: int) -> None:
    with pytest.raises(DecodeError, match=f"unknown API key {key}$"):
        ServerSession(Request).receive(request_bytes(key, 0, 1, b"\xff\xff"))


@pytest.mark.parametrize("size", range(8))
def test_a_request_shorter_than_a_header_ends_the_connection(size: int) -> None:
    with pytest.raises(DecodeError, match=f"a request of {size} bytes has no header"):
        ServerSession(Request).receive(framed(bytes(size)))


def test_a_header_that_is_cut_off_ends_the_connection() -> None:
    with pytest.raises(DecodeError, match="RequestHeader v1: "):
        ServerSession(Request).receive(request_bytes(12, 0, 1, b"\0\5ab"))


def test_a_version_without_tables_is_seen_before_decoding() -> None:
    (request,) = ServerSession(Request).receive(request_bytes(12, 99, 1, b"\xff\xff\0"))
    assert not request.is_supported
    with pytest.raises(DecodeError, match="HeartbeatRequest has no version 99"):
        request.decode()


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_api_versions_of_an_unknown_version_is_readable_and_answered_in_version_0(version: int) -> None:
    server = ServerSession(Request)
    rest = b"\0\2me\0" if version > 0 else b"\0\2me"
    (request,) = server.receive(request_bytes(18, version, 7, rest + b"whatever a later version has"))
    assert (request.api.name, request.client_id, request.is_supported) == ("ApiVersions", "me", False)
    ranges = [ApiVersion(api_key=18, min_version=0, max_version=4)]
    answer = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=ranges)
    data = joined(server.answer(request, answer, version=0))
    assert data == bytes.fromhex("00000010 00000007 0023 00000001 0012 0000 0004")


def test_a_connection_has_the_limit_it_was_given() -> None:
    with pytest.raises(DecodeError, match="over the limit of 20"):
        ServerSession(Request, limit=20).receive(bytes.fromhex("00000015"))
    with pytest.raises(DecodeError, match="over the limit of 20"):
        ClientSession(limit=20).receive(bytes.fromhex("00000015"))


def test_a_client_numbers_its_requests_and_reads_replies_by_their_version() -> None:
    client = ClientSession("me")
    assert [client.send(MetadataRequest(), version)[0] for version in (1, 9)] == [0, 1]
    assert client.awaited == 2
    old, new = MetadataResponse(controller_id=5), MetadataResponse(controller_id=6, throttle_time_ms=1)
    data = framed(encode(ResponseHeader(correlation_id=0), 0), encode(old, 1))
    data += framed(encode(ResponseHeader(correlation_id=1), 1), encode(new, 9))
    replies = client.receive(data)
    assert [(reply.correlation_id, reply.response) for reply in replies] == [(0, old), (1, new)]
    assert client.awaited == 0


def test_a_request_begins_with_the_header_of_its_version() -> None:
    client = ClientSession("me")
    for version, header_version in ((3, 1), (4, 2)):
        data = memoryview(sent(client, HeartbeatRequest(group_id="g"), version))[4:]
        body = encode(HeartbeatRequest(group_id="g"), version)
        header = decode(RequestHeader, header_version, data[: -len(body)])
        assert (header.request_api_key, header.request_api_version, header.client_id) == (12, version, "me")
        assert data[-len(body) :].tobytes() == body


def test_a_request_that_cannot_be_written_awaits_no_reply() -> None:
    client = ClientSession()
    with pytest.raises(EncodeError):
        client.send(HeartbeatRequest(group_id=None), 4)  # type: ignore[arg-type]
    assert client.awaited == 0
    assert client.send(HeartbeatRequest(), 4)[0] == 0


def test_only_requests_can_be_sent() -> None:
    with pytest.raises(AssertionError, match="only a request can be sent"):
        ClientSession().send(RequestHeader(), 1)


def test_a_reply_out_of_order_is_refused() -> None:
    client = ClientSession()
    client.send(HeartbeatRequest(), 0)
    client.send(HeartbeatRequest(), 0)
    with pytest.raises(DecodeError, match="a reply to request 1 came in place of one to 0"):
        client.receive(framed(encode(ResponseHeader(correlation_id=1), 0), encode(HeartbeatResponse(), 0)))


def test_a_reply_that_nobody_asked_for_is_refused() -> None:
    with pytest.raises(DecodeError, match="a reply came that nobody asked for"):
        ClientSession().receive(framed(encode(ResponseHeader(), 0), encode(HeartbeatResponse(), 0)))


def test_a_reply_with_bytes_behind_it_is_refused() -> None:
    client = ClientSession()
    client.send(HeartbeatRequest(), 0)
    with pytest.raises(DecodeError, match="HeartbeatResponse v0: 1 bytes too many"):
        client.receive(framed(encode(ResponseHeader(), 0), encode(HeartbeatResponse(), 0), b"\0"))


def test_correlation_ids_start_again_before_they_become_negative() -> None:
    client = ClientSession()
    client._next_id = 0x7FFFFFFF
    assert client.send(HeartbeatRequest(), 4)[0] == 0x7FFFFFFF
    assert client.send(HeartbeatRequest(), 4)[0] == 0


@pytest.mark.parametrize("seed", range(20))
def test_a_client_and_a_server_understand_each_other_however_their_bytes_are_cut(seed: int) -> None:
    rng = Random(seed)
    client, server = ClientSession("me"), ServerSession(Request)
    asked: deque[tuple[Message, int]] = deque()
    expected: deque[Message] = deque()
    responses: dict[int, Message] = {}
    to_server, to_client = bytearray(), bytearray()
    open_requests: list[Request] = []
    kinds = all_apis()
    unsent = 60
    while unsent or asked or expected or open_requests:
        match rng.randrange(4):
            case 0 if unsent:
                kind = rng.choice(kinds)
                version = rng.choice(versions_of(kind.request))
                message = random_message(kind.request, version, rng)
                wants_reply = not (isinstance(message, ProduceRequest) and message.acks == 0)
                correlation_id, chunks = client.send(message, version)
                to_server += joined(chunks)
                asked.append((message, version))
                if wants_reply:
                    responses[correlation_id] = random_message(kind.response, version, rng)
                    expected.append(responses[correlation_id])
                unsent -= 1
            case 1:
                for request in server.receive(taken(to_server, rng)):
                    assert (request.decode(), request.version) == asked.popleft(), f"seed {seed}"
                    open_requests.append(request)
            case 2 if open_requests:
                request = open_requests.pop(rng.randrange(len(open_requests)))
                to_client += joined(server.answer(request, responses.get(request.correlation_id)))
            case 3:
                for reply in client.receive(taken(to_client, rng)):
                    assert reply.response == responses[reply.correlation_id], f"seed {seed}"
                    assert reply.response == expected.popleft(), f"seed {seed}"
    assert (server.unanswered, client.awaited, len(to_server), len(to_client)) == (0, 0, 0, 0), f"seed {seed}"


def taken(stream: bytearray, rng: Random) -> bytes:
    """Some of what is under way, as a socket would give it."""
    size = rng.choice((1, 3, 10, 1000, 100_000))
    piece = bytes(stream[:size])
    del stream[:size]
    return piece


def test_a_session_knows_whose_reply_is_next() -> None:
    client, server = ClientSession(), ServerSession(Request)
    first, second = server.receive(sent(client, HeartbeatRequest(), 4) + sent(client, HeartbeatRequest(), 4))
    assert server.is_next(first)
    assert not server.is_next(second)
    server.answer(first, HeartbeatResponse())
    assert server.is_next(second)


def test_a_session_knows_which_request_all_others_wait_for_and_which_have_their_reply() -> None:
    client, server = ClientSession(), ServerSession(Request)
    data = b"".join(sent(client, HeartbeatRequest(), 4) for _ in range(3))
    first, second, third = server.receive(data)
    assert (server.first, server.answered()) == (first, [])
    server.answer(second, HeartbeatResponse())
    assert (server.first, server.answered()) == (first, [second])
    server.answer(first, HeartbeatResponse())
    assert (server.first, server.answered()) == (third, [])


def test_a_large_reply_may_be_received_in_place() -> None:
    client, server = ClientSession("me"), ServerSession(Request)
    [request] = server.receive(sent(client, HeartbeatRequest(), 4))
    data = joined(write_response(request, HeartbeatResponse(error_code=7), 4))
    [small] = client.receive(data)
    assert small.response == HeartbeatResponse(error_code=7)
    assert client.room() is None

    fetched = FetchResponse(
        responses=[FetchableTopicResponse(topic="t", partitions=[PartitionData(records=bytes(300_000))])]
    )
    [request] = server.receive(sent(client, FetchRequest(), 12))
    data = joined(write_response(request, fetched, 12))
    assert client.receive(data[:100]) == []
    room = client.room()
    assert room is not None
    assert len(room) == len(data) - 100
    room[:] = data[100:]
    assert client.fill(1000) == []
    [large] = client.fill(len(room) - 1000)
    assert large.response == fetched


def test_a_long_response_is_written_in_slices_that_say_how_much_there_is() -> None:
    server = ServerSession(Request)
    [request] = server.receive(sent(ClientSession(), MetadataRequest(), 12))
    topics = [MetadataResponseTopic(name=f"topic-{number}") for number in range(1000)]
    response = MetadataResponse(topics=topics, cluster_id="c")
    chunks: list[Any] = []

    def write() -> Generator[int, None, None]:
        chunks.extend((yield from write_response_in_slices(request, response)))

    sizes = list(write())
    assert len(sizes) > 5
    assert sizes == sorted(sizes)
    assert joined(chunks) == joined(write_response(request, response, 12))
    assert sizes[-1] + 4 == len(joined(chunks))


def test_a_reply_of_many_small_pieces_is_put_together_in_little_memory() -> None:
    request = Request(api(13), 3, 7, None, memoryview(b""))
    response = LeaveGroupResponse(members=[MemberResponse(member_id="a", error_code=25)] * 10_000)
    write_response(request, response, 3)
    tracemalloc.start()
    try:
        data = joined(write_response(request, response, 3))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert len(data) > 10_000 * 7
    # Three pieces of some 45 bytes each for a member, and nothing like it once more.
    assert peak < 10_000 * 250
