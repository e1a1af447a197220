"""Sessions of fetches: what a client has to say, and what it is told (KIP-227)."""

from collections.abc import Iterable

from penstock.machines.fetch_sessions import FetchSessions, Key, Session, Strangers, Wanted
from penstock.protocol.error_codes import ErrorCode

A: Key = ("orders", 0)
B: Key = ("orders", 1)


def wanted(offset: int = 0) -> Wanted:
    return Wanted(fetch_offset=offset, max_bytes=1000, current_leader_epoch=-1)


def open_session(
    sessions: FetchSessions,
    session_id: int,
    partitions: dict[Key, Wanted],
    *,
    now_ms: int = 0,
    missing: Iterable[Key] = (),
) -> Session | None:
    return sessions.open(session_id, partitions, strangers=strangers(missing), uses_topic_ids=False, now_ms=now_ms)


def strangers(keys: Iterable[Key]) -> Strangers:
    found = Strangers()
    for key in keys:
        found.add(key)
    return found


def opened(sessions: FetchSessions, session_id: int = 5, now_ms: int = 0) -> Session:
    session = open_session(sessions, session_id, {A: wanted(), B: wanted()}, now_ms=now_ms)
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
    assert open_session(sessions, 6, {}, now_ms=50) is None
    assert len(sessions) == 1


def test_a_session_that_nobody_has_used_for_long_makes_room() -> None:
    sessions = FetchSessions(1, min_idle_ms=100)
    opened(sessions, 5, now_ms=0)
    opened(sessions, 6, now_ms=200)
    assert resume(sessions, 5, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_without_slots_there_are_no_sessions() -> None:
    assert open_session(FetchSessions(0), 5, {}) is None


def test_a_closed_session_is_gone() -> None:
    sessions = FetchSessions(10)
    opened(sessions)
    sessions.close(5)
    assert len(sessions) == 0


# Bounds


def many(count: int, topic: str = "nothing") -> dict[Key, Wanted]:
    return {(topic, index): wanted() for index in range(count)}


def test_partitions_of_all_sessions_are_counted_as_they_come_and_go() -> None:
    sessions = FetchSessions(10)
    opened(sessions, 5)
    opened(sessions, 6)
    assert sessions.partitions == 4
    resume(sessions, 5, 1, [(("orders", 2), wanted())], [A, B])
    assert sessions.partitions == 3
    sessions.close(6)
    sessions.close(6)
    assert sessions.partitions == 1


def test_a_session_for_which_there_is_no_room_among_all_is_not_opened() -> None:
    sessions = FetchSessions(10, max_partitions=10, min_idle_ms=100)
    assert open_session(sessions, 5, many(11)) is None
    assert open_session(sessions, 5, many(6)) is not None
    assert open_session(sessions, 6, many(6), now_ms=50) is None
    assert open_session(sessions, 6, many(6), now_ms=100) is not None
    assert (len(sessions), sessions.partitions) == (1, 6)


def test_a_session_that_outgrows_the_room_of_all_is_closed() -> None:
    sessions = FetchSessions(10, max_partitions=10)
    opened(sessions)
    session = resume(sessions, 5, 1, many(8).items())
    assert isinstance(session, Session)
    assert sessions.may_stay(session, strangers([]))
    session = resume(sessions, 5, 2, [(("orders", 7), wanted())])
    assert isinstance(session, Session)
    assert not sessions.may_stay(session, strangers([]))
    assert (len(sessions), sessions.partitions) == (0, 0)
    assert not sessions.may_stay(session, strangers([])), "it is gone"


def test_a_few_partitions_that_do_not_exist_are_no_reason_to_close_a_session() -> None:
    sessions = FetchSessions(10)
    for unknown, known, is_kept in [(10, 0, True), (11, 0, False), (40, 30, True), (41, 30, False)]:
        missing = many(unknown)
        session = open_session(sessions, 5, {**missing, **many(known, "orders")}, missing=missing)
        assert (session is not None) == is_kept
        sessions.close(5)


def test_partitions_that_cease_to_exist_close_their_session_once_they_are_too_many() -> None:
    sessions = FetchSessions(10)
    partitions = many(20)
    session = open_session(sessions, 5, partitions)
    assert session is not None
    assert sessions.may_stay(session, strangers(list(partitions)[:15]))
    assert not sessions.may_stay(session, strangers(partitions))
    assert resume(sessions, 5, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_name_that_no_topic_can_have_is_not_kept() -> None:
    for length, is_kept in [(249, True), (250, False)]:
        key: Key = ("x" * length, 0)
        session = open_session(FetchSessions(10), 5, {key: wanted(), **many(50)}, missing=[key])
        assert (session is not None) == is_kept


def test_sessions_that_nobody_has_used_for_very_long_go_though_there_is_room() -> None:
    sessions = FetchSessions(10, max_idle_ms=1000)
    opened(sessions, 5, now_ms=0)
    opened(sessions, 6, now_ms=500)
    opened(sessions, 7, now_ms=1000)
    assert len(sessions) == 2
    assert resume(sessions, 5, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
