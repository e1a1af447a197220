"""The two errors, and where they stand among Python's."""

from penstock.protocol.errors import DecodeError, EncodeError


def test_both_errors_say_that_a_value_is_wrong_and_neither_is_the_other() -> None:
    assert issubclass(DecodeError, ValueError)
    assert issubclass(EncodeError, ValueError)
    assert not issubclass(DecodeError, EncodeError)
    assert not issubclass(EncodeError, DecodeError)
