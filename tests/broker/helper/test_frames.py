"""Frames between broker and helper: read as they were written, and bounded."""

import msgspec
import pytest

from penstock.broker.helper import frames
from penstock.broker.helper.frames import Cancel, Done, Failed, FrameError, Order, Result

BODY = msgspec.Raw(msgspec.msgpack.encode({"a": 1}))


def unframed(frame: bytes) -> bytes:
    prefix, body = frame[: frames.LENGTH.size], frame[frames.LENGTH.size :]
    assert frames.length(prefix, frames.MAX_ANSWER_BYTES) == len(body)
    return body


@pytest.mark.parametrize("message", [Order(1, "clean", BODY), Cancel(7)])
def test_an_order_is_read_as_it_was_written(message: Order | Cancel) -> None:
    assert frames.read_order(unframed(frames.write(message))) == message


@pytest.mark.parametrize("message", [Result(1, 0, BODY), Done(1), Failed(1, "ValueError", "no", "here")])
def test_an_answer_is_read_as_it_was_written(message: Result | Done | Failed) -> None:
    assert frames.read_answer(unframed(frames.write(message))) == message


def test_a_message_over_the_limit_is_not_sent() -> None:
    with pytest.raises(FrameError, match="make the job smaller"):
        frames.write(Order(1, "clean", msgspec.Raw(msgspec.msgpack.encode(bytes(frames.MAX_ORDER_BYTES)))))


def test_a_length_over_the_limit_is_not_believed() -> None:
    with pytest.raises(FrameError, match="over the limit"):
        frames.length(b"\xff\xff\xff\xff", frames.MAX_ORDER_BYTES)


@pytest.mark.parametrize("body", [b"", b"\xc1", msgspec.msgpack.encode({"type": "Else"}), frames.write(Done(1))[4:]])
def test_what_is_no_order_is_refused(body: bytes) -> None:
    with pytest.raises(FrameError, match="cannot be read"):
        frames.read_order(body)
