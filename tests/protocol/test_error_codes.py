"""The error codes against kio's, which are taken from Kafka's own table."""

import kio.schema.errors

from penstock.protocol.error_codes import ErrorCode


def test_every_code_has_the_name_and_the_retriable_flag_that_kio_knows() -> None:
    ours = {(code.value, code.name, code.retriable) for code in ErrorCode}
    theirs = {(int(code), code.name.upper(), code.retriable) for code in kio.schema.errors.ErrorCode}
    assert ours == theirs


def test_a_code_is_the_number_on_the_wire() -> None:
    assert int(ErrorCode.NOT_LEADER_OR_FOLLOWER) == 6
    assert ErrorCode(6) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.retriable
    assert not ErrorCode.NONE.retriable
