"""What may be kept of a group, measured before it is."""

import pytest

from penstock.machines.groups.bounds import (
    MAX_PROTOCOLS,
    NAME_BYTES,
    STRING_BYTES,
    fits,
    is_name,
    join_error,
    may_say,
    plan_fits,
)
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.groups import JoinGroupRequest, JoinGroupRequestProtocol

RECORD_BYTES = 1_000_000
LONG = "n" * (NAME_BYTES + 1)


def join_request(
    *protocols: tuple[str, bytes], kind: str = "consumer", instance_id: str | None = None
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        protocol_type=kind,
        group_instance_id=instance_id,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols],
    )


@pytest.mark.parametrize("character", ["n", "ü", "€", "🚀", "\ud83d"])
def test_a_name_is_measured_in_bytes(character: str) -> None:
    size = len(character.encode("utf-8", "surrogatepass"))
    assert is_name(character * (NAME_BYTES // size))
    assert not is_name(character * (NAME_BYTES // size + 1))


def test_a_name_is_shorter_than_the_log_would_allow() -> None:
    assert NAME_BYTES < STRING_BYTES
    assert fits("n" * STRING_BYTES, STRING_BYTES)
    assert not fits("n" * (STRING_BYTES + 1), STRING_BYTES)


@pytest.mark.parametrize(
    "request_",
    [
        join_request((LONG, b"")),
        join_request(("range", b""), kind=LONG),
        join_request(("range", b""), instance_id=LONG),
        join_request(*[("range", b"")] * (MAX_PROTOCOLS + 1)),
        join_request(("range", bytes(RECORD_BYTES // 2 + 1))),
        join_request(("range", bytes(RECORD_BYTES // 4 + 1)), ("sticky", bytes(RECORD_BYTES // 4))),
    ],
    ids=["name", "type", "instance", "number of protocols", "metadata", "metadata of all protocols"],
)
def test_a_member_that_says_too_much_of_itself_is_refused(request_: JoinGroupRequest) -> None:
    assert join_error(request_, RECORD_BYTES) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "request_",
    [
        join_request(("n" * NAME_BYTES, b""), kind="k" * NAME_BYTES, instance_id="i" * NAME_BYTES),
        join_request(*[("range", b"")] * MAX_PROTOCOLS),
        join_request(("range", bytes(RECORD_BYTES // 4)), ("sticky", bytes(RECORD_BYTES // 4))),
        # Groups have rules of their own for these.
        join_request(),
        join_request(("", b""), kind=""),
    ],
    ids=["names", "number of protocols", "metadata", "no protocols", "empty names"],
)
def test_a_member_that_says_as_much_as_it_may_is_not(request_: JoinGroupRequest) -> None:
    assert join_error(request_, RECORD_BYTES) is None


def test_what_members_say_leaves_a_quarter_of_the_record_for_the_plan() -> None:
    assert may_say(750_000, RECORD_BYTES)
    assert not may_say(750_001, RECORD_BYTES)
    assert plan_fits(750_000, [bytes(100_000), bytes(150_000)], RECORD_BYTES)
    assert not plan_fits(750_000, [bytes(100_000), bytes(150_001)], RECORD_BYTES)
