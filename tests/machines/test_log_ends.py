"""Where logs end, and which of two goes farther."""

from penstock.machines.log_ends import NO_EPOCH, LogEnd, pack, unpack

ORDERS, BILLS = b"o" * 16, b"b" * 16


def test_they_travel_by_topic() -> None:
    ends = {(ORDERS, 0): LogEnd(3, 100, 4), (BILLS, 7): LogEnd(NO_EPOCH, 0, NO_EPOCH), (ORDERS, 2): LogEnd(1, 5, 1)}
    assert len(pack(ends)) == 2
    assert unpack(pack(ends)) == ends
    assert unpack(pack({})) == {}


def test_a_later_epoch_goes_farther_than_a_larger_offset() -> None:
    assert max(LogEnd(3, 100, 3), LogEnd(4, 7, 4), LogEnd(4, 6, 9)) == LogEnd(4, 7, 4)


def test_logs_are_equal_by_their_last_record_and_not_by_elections_after_it() -> None:
    assert LogEnd(3, 100, 3).equals(LogEnd(3, 100, 5))
    assert not LogEnd(3, 100, 3).equals(LogEnd(3, 99, 3))
    assert not LogEnd(2, 100, 3).equals(LogEnd(3, 100, 3))


def test_logs_of_unknown_epochs_are_equal_only_if_they_are_empty() -> None:
    assert LogEnd(NO_EPOCH, 0, NO_EPOCH).equals(LogEnd(NO_EPOCH, 0, 4))
    assert not LogEnd(NO_EPOCH, 5, NO_EPOCH).equals(LogEnd(NO_EPOCH, 5, NO_EPOCH))
