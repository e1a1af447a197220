"""What is said about batches that cannot be read, where they end, and how often that is logged."""

from penstock.client.corruption import LOG_INTERVAL_S, PassedOver, corrupt_batch, end_of_batch, split_damaged
from penstock.client.metadata import TopicPartition
from penstock.protocol.batch import BatchHeader, read_header
from penstock.protocol.records import NewRecord, build

KEY = TopicPartition("orders", 3)


def batch(base_offset: int, count: int = 1) -> bytes:
    return bytes(build([NewRecord(b"v", timestamp=1)] * count, base_offset=base_offset))


def header(base_offset: int, count: int = 1) -> BatchHeader:
    return read_header(batch(base_offset, count))


def test_the_error_names_the_place_the_reason_and_what_to_do() -> None:
    error = corrupt_batch(KEY, 7, 9, "it is empty")
    assert str(error) == (
        "orders-3: the batch at offset 7 cannot be read: it is empty; `seek` to offset 9 to go on after it, or set "
        "on_corrupt='skip' to pass over such batches"
    )
    assert (error.partition, error.offset, error.next_offset, error.why) == (KEY, 7, 9, "it is empty")
    assert str(corrupt_batch(KEY, 7, 9, "it is empty", advice="stop")).endswith("it is empty; stop")
    assert "go on at a later offset" in str(corrupt_batch(KEY, 7, None, "it is empty"))


def test_a_batch_ends_where_a_header_says_that_can_be_believed() -> None:
    told = header(5, 3)

    def end(
        header: BatchHeader, *, is_intact: bool, following: BatchHeader | None = None, log_end: int = 100
    ) -> int | None:
        return end_of_batch(header, is_intact=is_intact, position=5, following=following, log_end=log_end)

    assert end(told, is_intact=True, log_end=0) == 8
    assert end(told, is_intact=True, following=header(20)) == 8
    assert end(told, is_intact=False, following=header(20)) == 20
    assert end(told, is_intact=False, following=header(5)) is None
    assert end(told, is_intact=False) == 8
    assert end(told, is_intact=False, log_end=7) is None
    assert end(told._replace(last_offset_delta=-4), is_intact=True) is None
    assert end(told._replace(magic=1), is_intact=False) is None


def test_damage_does_not_hide_the_batches_around_it() -> None:
    unknown = bytearray(batch(1))
    unknown[16] = 7
    pieces = split_damaged(memoryview(batch(0) + bytes(unknown) + batch(2) + batch(3)[:-1]))
    assert [(each.base_offset, error is None) for each, _, error in pieces] == [(0, True), (1, False), (2, True)]
    [(_, view, error)] = split_damaged(memoryview(b"\x00" * 100))
    assert (len(view), error is None) == (100, False)
    [(_, view, error)] = split_damaged(memoryview(b"short"))
    assert (len(view), error is None) == (5, False)


def test_of_many_batches_passed_over_within_a_second_one_is_logged_and_all_are_counted() -> None:
    lines: list[str] = []
    now = 0.0
    passed_over = PassedOver(lines.append, clock=lambda: now)
    error = corrupt_batch(KEY, 7, 9, "it is empty")
    for _ in range(1000):
        passed_over.note(error)
    assert (passed_over.count, len(lines)) == (1000, 1)
    assert lines[0] == (
        "orders-3: the batch at offset 7 cannot be read: it is empty; it is passed over, going on at offset 9"
    )
    now += LOG_INTERVAL_S
    passed_over.note(error)
    assert lines[1].endswith("(999 others were passed over since the last such line)")
