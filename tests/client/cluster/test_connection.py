"""One connection against a scripted broker: negotiation, order, deadlines, cancellation, and bad company."""

import asyncio

import pytest

from penstock.client.cluster.connection import MAX_IN_FLIGHT, MAX_THROTTLE_MS, Connection, read_greeting
from penstock.client.errors import (
    AuthenticationError,
    BadReplyError,
    ConnectionLostError,
    TimedOutError,
    UnsendableError,
)
from penstock.client.metadata import Address
from penstock.protocol.errors import DecodeError
from penstock.protocol.schema import Versions
from penstock.protocol.schemas.cluster import DescribeClusterRequest
from penstock.protocol.schemas.groups import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from penstock.protocol.schemas.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.protocol.schemas.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
)
from penstock.protocol.schemas.versions import ApiVersionsRequest, ApiVersionsResponse
from tests.client.peer import HANG_UP, SILENCE, Peer, Raw, closed_port, peer
from tests.client.secured import Guard, known_as
from tests.client.virtual_time import in_virtual_time
from tests.waiting import in_loop


def heartbeat(number: int) -> HeartbeatRequest:
    return HeartbeatRequest(generation_id=number)


def echo(request: HeartbeatRequest) -> HeartbeatResponse:
    """A response that tells which request it belongs to."""
    return HeartbeatResponse(error_code=request.generation_id)


async def connect(broker: Peer, **options: int) -> Connection:
    return await Connection.open("127.0.0.1", broker.port, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost:9093", ("localhost", 9093)),
        ("localhost", ("localhost", 9092)),
        (" broker.example:1 ", ("broker.example", 1)),
        ("[::1]:9094", ("::1", 9094)),
        ("[::1]", ("::1", 9092)),
        ("::1", ("::1", 9092)),
    ],
)
def test_an_address_is_read_with_or_without_a_port(text: str, address: tuple[str, int]) -> None:
    assert Address.parse(text) == address
    assert Address.parse(str(Address.parse(text))) == address


@pytest.mark.parametrize("text", ["", ":9092", "host:", "host:zero", "host:0", "host:65536", "host:٣", "[]:1"])
def test_what_is_no_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="localhost:9092"):
        Address.parse(text)


@in_loop
async def test_a_request_is_sent_in_the_highest_version_that_both_sides_know() -> None:
    async with peer() as broker:
        broker.offer(MetadataRequest, 0, 9)
        broker.offer(HeartbeatRequest, 0, 999)
        broker.answers[HeartbeatRequest] = echo
        connection = await connect(broker)
        await connection.request(MetadataRequest())
        await connection.request(heartbeat(1))
        await connection.close()
        assert broker.versions_of(MetadataRequest) == [9]
        assert broker.versions_of(HeartbeatRequest) == [HeartbeatRequest.schema.versions.last]


@in_loop
async def test_the_caller_can_keep_to_older_versions() -> None:
    async with peer() as broker:
        connection = await connect(broker)
        await connection.request(MetadataRequest(), versions=Versions(0, 8))
        await connection.close()
        assert broker.versions_of(MetadataRequest) == [8]


@in_loop
async def test_a_request_without_a_common_version_is_not_sent_and_the_error_says_who_is_too_old() -> None:
    async with peer() as broker:
        broker.offer(MetadataRequest, 0, 3)
        broker.offer(HeartbeatRequest, 100, 101)
        del broker.versions[60]
        connection = await connect(broker)
        with pytest.raises(UnsendableError, match="versions 0 to 3, not in 4 to 13: upgrade the broker"):
            await connection.request(MetadataRequest(), versions=Versions(4, 99))
        with pytest.raises(UnsendableError, match="upgrade the client"):
            await connection.request(heartbeat(1))
        with pytest.raises(UnsendableError, match="does not offer DescribeCluster"):
            await connection.request(DescribeClusterRequest())
        await connection.close()
        assert [type(message) for _, message in broker.received] == [ApiVersionsRequest]


@pytest.mark.parametrize("newest", [0, 2, 3])
@in_loop
async def test_a_broker_that_refuses_our_greeting_is_greeted_in_a_version_it_knows(newest: int) -> None:
    async with peer() as broker:
        broker.greeting_versions = Versions(0, newest)
        connection = await connect(broker)
        assert broker.versions_of(ApiVersionsRequest) == [newest]
        assert connection.versions == broker.versions
        assert isinstance(await connection.request(MetadataRequest()), MetadataResponse)
        await connection.close()


@in_loop
async def test_a_broker_that_refuses_every_greeting_is_reported() -> None:
    async with peer() as broker:
        broker.answers[ApiVersionsRequest] = lambda _: ApiVersionsResponse(error_code=42)
        with pytest.raises(BadReplyError, match="error code 42"):
            await connect(broker)
        await broker.until(lambda: not broker.connections)


@in_loop
async def test_an_address_where_nobody_listens_is_named() -> None:
    port = closed_port()
    with pytest.raises(ConnectionLostError, match=f"127.0.0.1:{port}.*check the address") as caught:
        await Connection.open("127.0.0.1", port)
    assert not caught.value.outcome_unknown


@in_loop
async def test_a_peer_that_never_answers_the_greeting_is_given_up() -> None:
    async with peer() as broker:
        broker.answers[ApiVersionsRequest] = lambda _: SILENCE
        with pytest.raises(ConnectionLostError, match="within 50 ms"):
            await connect(broker, timeout_ms=50)
        await broker.until(lambda: not broker.connections)


@in_loop
async def test_a_peer_that_hangs_up_on_the_greeting_is_reported() -> None:
    async with peer() as broker:
        broker.answers[ApiVersionsRequest] = lambda _: HANG_UP
        with pytest.raises(ConnectionLostError, match="closed the connection"):
            await connect(broker)


@pytest.mark.parametrize(
    "garbage",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x15\x03\x03\x00\x02\x02\x46",
        b"\x00\x00\x00\x02hi",
        b"\x00\x00\x00\x0a" + b"\x7f" * 10,
        b"\x00\x00\x00\x08\x00\x00\x00\x00\x00\x00\xff\xff",
        b"\x00\x00\x00\x06\x00\x00\x00\x00\x00\x00" * 2,
    ],
    ids=["http", "tls", "short", "foreign", "damaged", "two"],
)
@in_loop
async def test_a_peer_that_does_not_speak_kafka_is_told_apart_from_a_dead_one(garbage: bytes) -> None:
    async with peer() as broker:
        broker.answers[ApiVersionsRequest] = lambda _: Raw(garbage)
        with pytest.raises(BadReplyError, match="check the port"):
            await connect(broker)
        await broker.until(lambda: not broker.connections)


@in_loop
async def test_giving_up_an_opening_closes_the_connection() -> None:
    async with peer() as broker:
        broker.answers[ApiVersionsRequest] = lambda _: SILENCE
        opening = asyncio.create_task(connect(broker))
        await broker.until(lambda: len(broker.received) == 1)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await broker.until(lambda: not broker.connections)


@in_loop
async def test_many_requests_are_in_flight_at_once_and_each_gets_its_own_reply() -> None:
    async with peer() as broker:
        all_there = asyncio.Event()

        async def answer_in_reverse(request: HeartbeatRequest) -> HeartbeatResponse:
            if len(broker.requests(HeartbeatRequest)) == 50:
                all_there.set()
            await all_there.wait()
            return echo(request)

        broker.answers[HeartbeatRequest] = answer_in_reverse
        connection = await connect(broker)
        replies = await asyncio.gather(*(connection.request(heartbeat(number)) for number in range(50)))
        await connection.close()
        assert [reply.error_code for reply in replies] == list(range(50))
        assert broker.opened == 1


@in_loop
async def test_no_more_than_a_bounded_number_is_in_flight_and_the_rest_keeps_its_order() -> None:
    async with peer() as broker:
        released = asyncio.Event()

        async def answer_later(request: HeartbeatRequest) -> HeartbeatResponse:
            await released.wait()
            return echo(request)

        broker.answers[HeartbeatRequest] = answer_later
        connection = await connect(broker)
        count = 2 * MAX_IN_FLIGHT + 10
        tasks = [asyncio.create_task(connection.request(heartbeat(number))) for number in range(count)]
        await broker.until(lambda: len(broker.requests(HeartbeatRequest)) == MAX_IN_FLIGHT)
        assert connection.in_flight == MAX_IN_FLIGHT
        released.set()
        replies = await asyncio.gather(*tasks)
        await connection.close()
        assert [reply.error_code for reply in replies] == list(range(count))
        assert [request.generation_id for request in broker.requests(HeartbeatRequest)] == list(range(count))


@in_loop
async def test_a_cancelled_request_leaves_the_connection_in_step() -> None:
    async with peer() as broker:
        released = asyncio.Event()

        async def answer_later(request: HeartbeatRequest) -> HeartbeatResponse:
            await released.wait()
            return echo(request)

        broker.answers[HeartbeatRequest] = answer_later
        connection = await connect(broker)
        first, second, third = (asyncio.create_task(connection.request(heartbeat(number))) for number in (1, 2, 3))
        await broker.until(lambda: len(broker.requests(HeartbeatRequest)) == 3)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        assert connection.in_flight == 3
        released.set()
        assert [(await first).error_code, (await third).error_code] == [1, 3]
        assert (await connection.request(heartbeat(4))).error_code == 4
        assert connection.in_flight == 0
        await connection.close()


@in_loop
async def test_a_request_that_is_cancelled_before_its_turn_is_never_sent() -> None:
    async with peer() as broker:
        released = asyncio.Event()

        async def answer_later(request: HeartbeatRequest) -> HeartbeatResponse:
            await released.wait()
            return echo(request)

        broker.answers[HeartbeatRequest] = answer_later
        connection = await connect(broker)
        tasks = [asyncio.create_task(connection.request(heartbeat(number))) for number in range(MAX_IN_FLIGHT + 3)]
        await broker.until(lambda: len(broker.requests(HeartbeatRequest)) == MAX_IN_FLIGHT)
        # One of them has the turn and waits for room, the other waits for the turn.
        cancelled = tasks[MAX_IN_FLIGHT : MAX_IN_FLIGHT + 2]
        for task in cancelled:
            task.cancel()
        await asyncio.wait(cancelled)
        assert all(task.cancelled() for task in cancelled)
        released.set()
        assert (await tasks[-1]).error_code == MAX_IN_FLIGHT + 2
        await asyncio.gather(*tasks[:MAX_IN_FLIGHT])
        await connection.close()
        assert MAX_IN_FLIGHT not in {request.generation_id for request in broker.requests(HeartbeatRequest)}
        assert len(broker.requests(HeartbeatRequest)) == MAX_IN_FLIGHT + 1


@in_loop
async def test_a_request_without_an_answer_in_time_closes_the_connection_for_all() -> None:
    async with peer() as broker:
        broker.answers[HeartbeatRequest] = lambda _: SILENCE
        connection = await connect(broker)
        patient = asyncio.create_task(connection.request(heartbeat(1)))
        await broker.until(lambda: len(broker.requests(HeartbeatRequest)) == 1)
        with pytest.raises(TimedOutError, match="did not answer Heartbeat within 20 ms") as late:
            await connection.request(heartbeat(2), timeout_ms=20)
        with pytest.raises(ConnectionLostError, match="did not answer Heartbeat within 20 ms") as lost:
            await patient
        assert late.value.outcome_unknown
        assert lost.value.outcome_unknown
        assert not connection.is_open
        with pytest.raises(ConnectionLostError) as refused:
            await connection.request(heartbeat(3))
        assert not refused.value.outcome_unknown
        await broker.until(lambda: not broker.connections)


@in_loop
async def test_an_abandoned_request_still_has_its_deadline() -> None:
    """Or a dead broker would be taken for a living one as long as all callers are in a hurry."""
    async with peer() as broker:
        broker.answers[HeartbeatRequest] = lambda _: SILENCE
        connection = await connect(broker, request_timeout_ms=50)
        abandoned = asyncio.create_task(connection.request(heartbeat(1)))
        await broker.until(lambda: len(broker.requests(HeartbeatRequest)) == 1)
        abandoned.cancel()
        await broker.until(lambda: not broker.connections)
        assert not connection.is_open


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00\x00\x00\x0a\x00\x00\x00\x63\x00\x00\x00\x00\x00\x00",
        b"\x00\x00\x00\x04\x00\x00\x00\x00",
        b"\x00\x00\x00\x20\x00\x00\x00\x00" + b"\xff" * 28,
        b"\x7f\xff\xff\xff\x00\x00\x00\x00",
        b"\xff\xff\xff\xff\x00\x00\x00\x00",
    ],
    ids=["another's", "cut off", "damaged", "too long", "negative"],
)
@in_loop
async def test_a_reply_out_of_step_or_damaged_closes_the_connection(garbage: bytes) -> None:
    async with peer() as broker:
        broker.answers[HeartbeatRequest] = lambda _: Raw(garbage)
        connection = await connect(broker)
        outcomes = await asyncio.gather(
            *(connection.request(heartbeat(number)) for number in range(3)), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [BadReplyError] * 3
        assert not connection.is_open
        await broker.until(lambda: not broker.connections)


@in_loop
async def test_a_reply_that_nobody_asked_for_closes_the_connection() -> None:
    async with peer() as broker:
        connection = await connect(broker)
        broker.connections[0].transport.write(b"\x00\x00\x00\x04\x00\x00\x00\x00")
        await broker.until(lambda: not broker.connections)
        with pytest.raises(BadReplyError, match="nobody asked for"):
            await connection.request(heartbeat(1))


@in_loop
async def test_a_lost_connection_says_what_may_have_been_done() -> None:
    async with peer() as broker:
        broker.answers[HeartbeatRequest] = lambda _: HANG_UP
        connection = await connect(broker)
        with pytest.raises(ConnectionLostError) as sent:
            await connection.request(heartbeat(1))
        assert sent.value.outcome_unknown
        with pytest.raises(ConnectionLostError) as not_sent:
            await connection.request(heartbeat(2))
        assert not not_sent.value.outcome_unknown
        await connection.close()


@in_loop
async def test_those_who_wait_for_room_hear_of_a_lost_connection_too() -> None:
    async with peer() as broker:
        broker.answers[HeartbeatRequest] = lambda _: SILENCE
        connection = await connect(broker)
        tasks = [asyncio.create_task(connection.request(heartbeat(number))) for number in range(MAX_IN_FLIGHT + 2)]
        await broker.until(lambda: len(broker.requests(HeartbeatRequest)) == MAX_IN_FLIGHT)
        broker.connections[0].hang_up()
        errors = await asyncio.gather(*tasks, return_exceptions=True)
        known = [error.outcome_unknown for error in errors if isinstance(error, ConnectionLostError)]
        assert known == [True] * MAX_IN_FLIGHT + [False] * 2


@in_loop
async def test_a_request_that_cannot_be_written_leaves_the_connection_usable() -> None:
    async with peer() as broker:
        broker.answers[HeartbeatRequest] = echo
        connection = await connect(broker)
        with pytest.raises(UnsendableError, match="cannot be written"):
            await connection.request(heartbeat(2**40))
        by_id = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=b"x" * 16)])
        with pytest.raises(UnsendableError, match="cannot be written"):
            await connection.request(by_id, versions=Versions(9, 9))
        assert (await connection.request(heartbeat(7))).error_code == 7
        await connection.close()


def fire_and_forget(size: int = 10) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=bytes(size))
    return ProduceRequest(acks=0, topic_data=[TopicProduceData(topic_id=b"t" * 16, partition_data=[data])])


@in_loop
async def test_a_request_that_wants_no_reply_disturbs_none() -> None:
    async with peer() as broker:
        broker.answers[ProduceRequest] = lambda request: None if request.acks == 0 else ProduceResponse()
        broker.answers[HeartbeatRequest] = echo
        connection = await connect(broker)
        for number in range(3):
            assert await connection.request(fire_and_forget()) is None
            assert (await connection.request(heartbeat(number))).error_code == number
        await connection.close()


@in_loop
async def test_what_a_stalled_broker_does_not_take_waits_outside_the_buffers_until_the_deadline() -> None:
    async with peer() as broker:
        connection = await connect(broker, request_timeout_ms=100)
        broker.connections[0].transport.pause_reading()
        message = fire_and_forget(1024 * 1024)
        outcomes = await asyncio.gather(*(connection.request(message) for _ in range(200)), return_exceptions=True)
        taken = sum(outcome is None for outcome in outcomes)
        assert taken < 64, "the socket's buffers and one of ours, and not what piles up behind them"
        late = outcomes[taken]
        assert isinstance(late, TimedOutError)
        assert "took in no Produce within 100 ms" in str(late)
        assert not late.outcome_unknown
        assert not connection.is_open


@in_loop
async def test_writing_goes_on_when_the_broker_reads_again() -> None:
    async with peer() as broker:
        broker.answers[ProduceRequest] = lambda _: None
        connection = await connect(broker)
        broker.connections[0].transport.pause_reading()
        message = fire_and_forget(1024 * 1024)
        sending = [asyncio.create_task(connection.request(message)) for _ in range(40)]
        await asyncio.sleep(0)  # Each has now gone as far as it can.
        assert not all(task.done() for task in sending)
        broker.connections[0].transport.resume_reading()
        await asyncio.gather(*sending)
        await broker.until(lambda: len(broker.requests(ProduceRequest)) == 40)
        await connection.close()


@in_loop
async def test_who_does_not_want_to_wait_posts_while_the_connection_is_free() -> None:
    async with peer() as broker:
        broker.answers[HeartbeatRequest] = echo
        connection = await connect(broker)
        assert connection.is_free
        await connection.until_free()
        version = connection.version_for(HeartbeatRequest)
        replies = [connection.post(heartbeat(number), version) for number in range(3)]

        assert [(await reply).error_code for reply in replies if reply is not None] == [0, 1, 2]
        await connection.close()
        assert not connection.is_free
        with pytest.raises(ConnectionLostError):
            await connection.until_free()


@in_loop
async def test_a_broker_that_takes_in_nothing_is_waited_for_and_then_taken_for_dead() -> None:
    async with peer() as broker:
        connection = await connect(broker)
        broker.connections[0].transport.pause_reading()
        version = connection.version_for(ProduceRequest)
        data = [PartitionProduceData(index=0, records=bytes(4 * 1024 * 1024))]
        request = ProduceRequest(acks=0, topic_data=[TopicProduceData(name="orders", partition_data=data)])
        while connection.is_free:
            assert connection.post(request, version) is None
        with pytest.raises(TimedOutError, match="took in nothing within 20 ms"):
            await connection.until_free(20)

        assert not connection.is_open
        await connection.close()


@in_loop
async def test_closing_sends_what_is_written_and_ends_those_who_wait() -> None:
    async with peer() as broker:
        broker.answers[ProduceRequest] = lambda _: None
        broker.answers[HeartbeatRequest] = lambda _: SILENCE
        connection = await connect(broker)
        waiting = asyncio.create_task(connection.request(heartbeat(1)))
        await broker.until(lambda: len(broker.requests(HeartbeatRequest)) == 1)
        await connection.request(fire_and_forget(3_000_000))
        await connection.close()
        with pytest.raises(ConnectionLostError, match="closed here"):
            await waiting
        await broker.until(lambda: len(broker.requests(ProduceRequest)) == 1)
        await connection.close()


def test_a_greeting_of_another_request_is_refused() -> None:
    with pytest.raises(DecodeError, match="does not belong"):
        read_greeting(memoryview(b"\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00"), 8, 0)


async def connect_as_alice(broker: Peer) -> Connection:
    return await Connection.open("127.0.0.1", broker.port, security=known_as("SCRAM-SHA-256"))


@in_loop
async def test_a_session_that_lasts_as_long_as_the_connection_is_opened_once() -> None:
    guard = Guard()
    async with peer() as broker:
        guard.watch(broker)
        broker.answers[HeartbeatRequest] = echo
        connection = await connect_as_alice(broker)
        for number in range(3):
            await connection.request(heartbeat(number))
        await connection.close()
    assert len(guard.entered) == 1


@in_loop
async def test_a_session_is_renewed_in_time_while_requests_are_in_flight() -> None:
    """KIP-368: a broker takes in nothing else while it is renewed, and hangs up on a session that is over."""
    guard = Guard(lifetime_ms=1)
    async with peer() as broker:
        guard.watch(broker)
        broker.answers[HeartbeatRequest] = echo
        connection = await connect_as_alice(broker)
        guard.lifetime_ms = 60_000
        await after(connection)
        replies = await asyncio.gather(*(connection.request(heartbeat(number)) for number in range(20)))
        await connection.close()
    assert [reply.error_code for reply in replies] == list(range(20))
    assert len(guard.entered) == 2
    kinds = [type(message) for _, message in broker.received]
    renewal = kinds.index(SaslHandshakeRequest, 2)
    assert kinds[renewal : renewal + 3] == [SaslHandshakeRequest, SaslAuthenticateRequest, SaslAuthenticateRequest]
    assert set(kinds[renewal + 3 :]) == {HeartbeatRequest}


async def after(connection: Connection) -> None:
    """Wait until the connection's session has to be renewed."""
    due = connection._authenticate_at
    assert due is not None
    while asyncio.get_running_loop().time() < due:
        await asyncio.sleep(0)


@in_loop
async def test_a_renewal_goes_on_when_the_request_that_began_it_is_cancelled() -> None:
    guard = Guard(lifetime_ms=1)
    async with peer() as broker:
        guard.watch(broker)
        broker.answers[HeartbeatRequest] = echo
        connection = await connect_as_alice(broker)
        guard.lifetime_ms = 60_000
        released = asyncio.Event()

        async def hesitate(request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
            await released.wait()
            return guard.authenticate(request)

        broker.answers[SaslAuthenticateRequest] = hesitate
        await after(connection)
        hasty, patient = (asyncio.create_task(connection.request(heartbeat(number))) for number in (1, 2))
        await broker.until(lambda: len(broker.requests(SaslAuthenticateRequest)) == 3)
        hasty.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hasty
        released.set()
        assert (await patient).error_code == 2
        await connection.close()
    assert len(guard.entered) == 2
    assert [request.generation_id for request in broker.requests(HeartbeatRequest)] == [2]


@in_loop
async def test_a_renewal_that_is_refused_ends_the_connection() -> None:
    guard = Guard(lifetime_ms=1)
    async with peer() as broker:
        guard.watch(broker)
        connection = await connect_as_alice(broker)
        guard.users["alice"] = "changed"
        await after(connection)
        outcomes = await asyncio.gather(
            *(connection.request(heartbeat(number)) for number in range(3)), return_exceptions=True
        )
        refused = [outcome for outcome in outcomes if isinstance(outcome, AuthenticationError)]
        assert [error.outcome_unknown for error in refused] == [False] * 3
        assert not connection.is_open
        assert not broker.requests(HeartbeatRequest)
        await connection.close()


@in_loop
async def test_closing_ends_a_renewal() -> None:
    guard = Guard(lifetime_ms=1)
    async with peer() as broker:
        guard.watch(broker)
        connection = await connect_as_alice(broker)
        broker.answers[SaslHandshakeRequest] = lambda _: SILENCE
        await after(connection)
        waiting = asyncio.create_task(connection.request(heartbeat(1)))
        await broker.until(lambda: len(broker.requests(SaslHandshakeRequest)) == 2)
        await connection.close()
        with pytest.raises(ConnectionLostError, match="closed here") as caught:
            await waiting
        assert not caught.value.outcome_unknown


@in_loop
async def test_a_broker_that_hangs_up_on_the_first_request_may_want_a_password() -> None:
    async with peer() as broker:
        broker.answers[HeartbeatRequest] = lambda _: HANG_UP
        connection = await connect(broker)
        with pytest.raises(ConnectionLostError, match=r"wants a password, set security\.protocol"):
            await connection.request(heartbeat(1))


@in_loop
async def test_a_broker_that_hangs_up_while_we_log_in_leaves_no_doubt_about_the_outcome() -> None:
    async with peer() as broker:
        Guard().watch(broker)
        broker.answers[SaslAuthenticateRequest] = lambda _: HANG_UP
        with pytest.raises(ConnectionLostError) as caught:
            await connect_as_alice(broker)
        assert not caught.value.outcome_unknown


# A broker that throttles, against a clock that only waiting moves


@in_virtual_time
async def test_a_connection_is_silent_for_as_long_as_the_broker_says() -> None:
    async with peer() as broker:
        times: list[float] = []

        def answer(request: HeartbeatRequest) -> HeartbeatResponse:
            times.append(asyncio.get_running_loop().time())
            return HeartbeatResponse(throttle_time_ms=(50_000, 0, 2**31 - 1, 0)[request.generation_id])

        broker.answers[HeartbeatRequest] = answer
        connection = await connect(broker, request_timeout_ms=10_000)
        for number in range(2):
            await connection.request(heartbeat(number))
        assert connection.is_free
        assert times[1] - times[0] >= 50, "longer than a request may take, which is no delay of the broker's"
        await connection.request(heartbeat(2))
        assert not connection.is_free
        await asyncio.gather(connection.until_free(), connection.request(heartbeat(3)))
        assert MAX_THROTTLE_MS / 1000 <= times[3] - times[2] < MAX_THROTTLE_MS / 1000 + 1, "nobody is silent for ever"
        await connection.close()


@in_virtual_time
async def test_who_waits_for_a_broker_that_throttles_hears_when_the_connection_is_lost() -> None:
    async with peer() as broker:
        broker.answers[HeartbeatRequest] = lambda _: HeartbeatResponse(throttle_time_ms=50_000)
        connection = await connect(broker)
        await connection.request(heartbeat(0))
        waiting = asyncio.create_task(connection.request(heartbeat(1)))
        await asyncio.sleep(1)
        broker.connections[0].hang_up()
        with pytest.raises(ConnectionLostError):
            await waiting
        assert asyncio.get_running_loop().time() < 10
        await connection.close()


@in_virtual_time
async def test_a_broker_is_silent_from_when_it_should_have_answered() -> None:
    async with peer() as broker:
        broker.answers[HeartbeatRequest] = lambda _: SILENCE
        connection = await connect(broker, request_timeout_ms=10_000)
        assert connection.silent_seconds == 0
        # It may hold this one back for five seconds.
        held = asyncio.create_task(connection.request(heartbeat(0), timeout_ms=15_000))
        await asyncio.sleep(5)
        assert connection.silent_seconds < 0.1
        await asyncio.sleep(2)
        assert 1.9 < connection.silent_seconds < 2.1
        held.cancel()
        await asyncio.sleep(1)
        # The broker still owes the answer, though no caller waits for it.
        assert 2.9 < connection.silent_seconds < 3.1
        await connection.close()
