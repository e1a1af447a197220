"""Sessions of fetches: what a client has to say, and what it is told (KIP-227)."""

from collections import OrderedDict
from collections.abc import Iterable

from penstock.machines.fetch_sessions import FetchSessions, Key, Session, Wanted
from penstock.protocol.error_codes import ErrorCode

A: Key = ("orders", 0)
B: Key = ("orders", 1)


def wanted(offset: int = 0) -> Wanted:
    return Wanted(fetch_offset=offset, max_bytes=1000, current_leader_epoch=-1)


def opened(sessions: FetchSessions, session_id: int = 5, now_ms: int = 0) -> Session:
    session = sessions.open(session_id, OrderedDict({A: wanted(), B: wanted()}), uses_topic_ids=False, now_ms=now_ms)
    assert session is not None
    return session


def resume(
    sessions: FetchSessions,
    session_id: int,
    epoch: int,
    changes: Iterable[tuple[Key, Wanted]] = (),
    forgotten: Iterable[Key] = (),
    *,
    uses_topic_ids: bool = False,
) -> Session | ErrorCode:
    return sessions.resume(
        session_id, epoch, changes=changes, forgotten=forgotten, uses_topic_ids=uses_topic_ids, now_ms=1
    )


def told(session: Session, key: Key, *, records: bool = False, high_watermark: int = 4, error: int = 0) -> bool:
    return session.changed(key, has_records=records, high_watermark=high_watermark, log_start=0, error=error)


def test_a_session_remembers_its_partitions_and_takes_changes() -> None:
    sessions = FetchSessions(10)
    opened(sessions)
    session = resume(sessions, 5, 1, [(A, wanted(50))], [B])
    assert isinstance(session, Session)
    assert {key: item.fetch_offset for key, item in session.partitions.items()} == {A: 50}


def test_epochs_count_up_and_a_wrong_one_is_refused() -> None:
    sessions = FetchSessions(10)
    opened(sessions)
    assert isinstance(resume(sessions, 5, 1), Session)
    assert resume(sessions, 5, 1) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert isinstance(resume(sessions, 5, 2), Session)


def test_the_epoch_behind_the_largest_is_one() -> None:
    sessions = FetchSessions(10)
    opened(sessions).epoch = 0x7FFF_FFFF
    assert isinstance(resume(sessions, 5, 0x7FFF_FFFF), Session)
    assert isinstance(resume(sessions, 5, 1), Session)


def test_an_unknown_session_is_refused() -> None:
    assert resume(FetchSessions(10), 6, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_of_names_is_not_one_of_ids() -> None:
    sessions = FetchSessions(10)
    opened(sessions)
    assert resume(sessions, 5, 1, uses_topic_ids=True) == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_partition_is_news_only_when_something_has_changed() -> None:
    session = opened(FetchSessions(10))
    assert told(session, A)
    assert not told(session, A)
    assert told(session, A, high_watermark=5)
    assert told(session, A, high_watermark=5, records=True)
    assert not told(session, A, high_watermark=5)


def test_an_error_is_news_as_long_as_it_lasts_and_when_it_ends() -> None:
    session = opened(FetchSessions(10))
    told(session, A)
    assert told(session, A, error=6)
    assert told(session, A, error=6)
    assert told(session, A)
    assert not told(session, A)


def test_a_client_that_moves_on_is_not_told_again_what_it_knows() -> None:
    sessions = FetchSessions(10)
    told(opened(sessions), A)
    session = resume(sessions, 5, 1, [(A, wanted(4))])
    assert isinstance(session, Session)
    assert not told(session, A)


def test_a_partition_that_was_served_goes_behind_the_others() -> None:
    session = opened(FetchSessions(10))
    told(session, A, records=True)
    assert list(session.partitions) == [B, A]


def test_when_all_slots_are_taken_clients_do_without_a_session() -> None:
    sessions = FetchSessions(1, min_idle_ms=100)
    opened(sessions, 5, now_ms=0)
    assert sessions.open(6, OrderedDict(), uses_topic_ids=False, now_ms=50) is None
    assert len(sessions) == 1


def test_a_session_that_nobody_has_used_for_long_makes_room() -> None:
    sessions = FetchSessions(1, min_idle_ms=100)
    opened(sessions, 5, now_ms=0)
    opened(sessions, 6, now_ms=200)
    assert resume(sessions, 5, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_without_slots_there_are_no_sessions() -> None:
    assert FetchSessions(0).open(5, OrderedDict(), uses_topic_ids=False, now_ms=0) is None


def test_a_closed_session_is_gone() -> None:
    sessions = FetchSessions(10)
    opened(sessions)
    sessions.close(5)
    assert len(sessions) == 0
