"""When a record is committed, and who is told."""

from penstock.machines.partition_leader import PartitionLeader


def leader(high_watermark: int = 0) -> PartitionLeader:
    return PartitionLeader(leader_epoch=3, epoch_start_offset=high_watermark, high_watermark=high_watermark)


def test_what_is_committed_already_needs_no_wait() -> None:
    assert leader(10).wait_for(10, "producer")
    assert not leader(10).has_waiters


def test_waiters_are_answered_in_order_once_the_log_has_passed_them() -> None:
    partition = leader()
    for offset, name in [(3, "a"), (3, "b"), (7, "c")]:
        assert not partition.wait_for(offset, name)
    assert partition.log_advanced(2) == []
    assert partition.log_advanced(5) == ["a", "b"]
    assert partition.has_waiters
    assert partition.log_advanced(7) == ["c"]
    assert not partition.has_waiters


def test_the_high_watermark_never_goes_back() -> None:
    partition = leader(9)
    partition.log_advanced(4)
    assert partition.high_watermark == 9
    assert partition.last_stable_offset == 9


def test_a_leader_that_resigns_leaves_nobody_waiting() -> None:
    partition = leader()
    partition.wait_for(5, "producer")
    assert partition.resigned() == ["producer"]
    assert partition.log_advanced(5) == []
