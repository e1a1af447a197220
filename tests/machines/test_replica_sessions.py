"""What a leader keeps of a follower's fetches, and what it looks at for the next reply."""

from penstock.machines.replica_sessions import FIRST_EPOCH, Key, Position, ReplicaPositions

ONE: Key = (b"t" * 16, 0)
TWO: Key = (b"t" * 16, 1)


def at(offset: int) -> Position:
    return Position(offset, leader_epoch=3, last_fetched_epoch=2, log_start=0, max_bytes=1000)


def opened(*keys: Key) -> ReplicaPositions:
    """A session in which all partitions have been looked at, and have nothing for the follower."""
    session = ReplicaPositions(1)
    assert session.resume(FIRST_EPOCH, [(key, at(0)) for key in keys], [])
    for key in keys:
        session.passed(key)
    session.take_news()
    return session


def test_partitions_that_a_request_names_are_looked_at_in_its_order() -> None:
    session = ReplicaPositions(1)
    assert session.resume(FIRST_EPOCH, [(TWO, at(5)), (ONE, at(7))], [])
    assert session.ready() == [TWO, ONE]
    assert session.positions[ONE].offset == 7


def test_idle_partitions_are_not_looked_at() -> None:
    session = opened(ONE, TWO)
    assert session.resume(FIRST_EPOCH + 1, [], [])
    assert session.ready() == []
    assert session.grew(TWO)
    assert session.ready() == [TWO]


def test_a_request_that_is_not_the_next_one_changes_nothing() -> None:
    session = opened(ONE)
    for epoch in (FIRST_EPOCH, FIRST_EPOCH + 2):
        assert not session.resume(epoch, [(ONE, at(9))], [TWO])
    assert session.positions[ONE].offset == 0
    assert session.resume(FIRST_EPOCH + 1, [(ONE, at(9))], [])
    assert session.positions[ONE].offset == 9


def test_after_an_answer_a_partition_waits_until_the_follower_names_it_again() -> None:
    session = opened(ONE)
    session.grew(ONE)
    session.sent(ONE)
    assert not session.grew(ONE)
    assert session.ready() == []
    session.resume(FIRST_EPOCH + 1, [(ONE, at(4))], [])
    assert session.ready() == [ONE]


def test_a_partition_that_is_followed_no_longer_is_forgotten_with_all_that_was_known() -> None:
    session = opened(ONE, TWO)
    session.grew(ONE)
    session.has_news(ONE)
    session.resume(FIRST_EPOCH + 1, [], [ONE])
    assert session.ready() == session.take_news() == []
    assert not session.grew(ONE)
    session.has_news(ONE)
    assert session.take_news() == []
    # A follower may forget what the leader does not know.
    assert session.resume(FIRST_EPOCH + 2, [], [ONE])


def test_a_partition_that_is_forgotten_and_named_in_one_request_is_followed() -> None:
    session = opened(ONE)
    session.resume(FIRST_EPOCH + 1, [(ONE, at(3))], [ONE])
    assert session.ready() == [ONE]


def test_news_are_told_once() -> None:
    session = opened(ONE, TWO)
    session.has_news(TWO)
    session.has_news(TWO)
    assert session.take_news() == [TWO]
    assert session.take_news() == []


def test_news_wait_for_a_look_at_the_partition_since_its_log_may_not_agree() -> None:
    session = opened(ONE)
    session.has_news(ONE)
    session.resume(FIRST_EPOCH + 1, [(ONE, at(3))], [])
    assert session.take_news() == []
    session.passed(ONE)
    assert session.take_news() == [ONE]


def test_news_of_a_partition_whose_answer_is_under_way_are_told_when_it_is_named_again() -> None:
    session = opened(ONE)
    session.grew(ONE)
    session.sent(ONE)
    session.has_news(ONE)
    assert session.take_news() == []
    session.resume(FIRST_EPOCH + 1, [(ONE, at(3))], [])
    session.passed(ONE)
    assert session.take_news() == [ONE]


def test_what_was_told_is_remembered_when_the_offset_moves() -> None:
    session = opened(ONE)
    session.positions[ONE].told = (7, 0)
    session.resume(FIRST_EPOCH + 1, [(ONE, at(9))], [])
    assert session.positions[ONE].told == (7, 0)


def test_what_a_client_waits_for_is_told_now_and_once() -> None:
    session = opened(ONE, TWO)
    session.has_news(ONE)
    assert not session.has_urgent_news
    session.is_waited_for(ONE)
    assert session.has_urgent_news
    assert session.take_news() == [ONE]
    assert not session.has_urgent_news


def test_what_is_urgent_waits_while_an_answer_is_on_its_way_and_goes_with_one_that_is_still_to_leave() -> None:
    session = opened(ONE)
    session.grew(ONE)
    session.is_waited_for(ONE)
    # It goes with the records.
    assert not session.has_urgent_news
    session.sent(ONE)
    session.is_waited_for(ONE)
    assert not session.has_urgent_news
    assert session.take_news() == []
    session.resume(FIRST_EPOCH + 1, [(ONE, at(4))], [])
    session.passed(ONE)
    assert session.has_urgent_news
    assert session.take_news() == [ONE]
    session.is_waited_for(ONE)
    session.resume(FIRST_EPOCH + 2, [], [ONE])
    assert not session.has_urgent_news
