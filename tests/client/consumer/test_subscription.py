"""What a consumer reads: positions, versions, the line of those who have something, and how much is queued."""

from penstock.client.consumer.fetched import UNKNOWN, FetchedBatches, Returned
from penstock.client.consumer.subscription import COMMITTED, PartitionCursor, Subscription
from penstock.client.errors import ClientError
from penstock.client.message import Message
from penstock.client.metadata import TopicPartition
from penstock.protocol.records import NewRecord, build

A, B, C = (TopicPartition("orders", number) for number in range(3))


def fetched(key: TopicPartition, offset: int = 0, count: int = 3, epoch: int = 2) -> FetchedBatches:
    records = [NewRecord(b"v", timestamp=1)] * count
    return FetchedBatches(key, offset, memoryview(bytes(build(records, base_offset=offset, leader_epoch=epoch))))


def cursor(subscription: Subscription, key: TopicPartition, position: int = 0) -> PartitionCursor:
    [added] = subscription.add([key])
    subscription.seek(added, position)
    return added


def test_a_new_partition_waits_for_what_was_committed() -> None:
    subscription = Subscription()
    [one] = subscription.add([A])
    assert (one.lookup, one.position, one.wants_fetch) == (COMMITTED, UNKNOWN, False)
    assert subscription.add([A, B])[0].key == B
    assert list(subscription.cursors) == [A, B]


def test_a_seek_drops_what_was_fetched_and_tells_by_a_new_version() -> None:
    subscription = Subscription()
    one = cursor(subscription, A)
    subscription.arrived(one, fetched(A))
    assert (one.fetch_offset, one.fetch_epoch) == (3, 2)
    assert subscription.queued_bytes == one.queued_bytes > 0
    one.error = ClientError("of before")
    version = one.version
    subscription.seek(one, 7, epoch=4)
    assert one.version == version + 1
    assert (one.position, one.done, one.fetch_offset, one.queued_bytes) == (7, 7, 7, 0)
    assert one.wants_fetch
    assert (one.validates, one.fetch_epoch) == (True, 4)
    assert subscription.queued_bytes == 0
    assert subscription.next_in_line() is None


def test_a_lookup_takes_the_position_away() -> None:
    subscription = Subscription()
    one = cursor(subscription, A, 5)
    subscription.look_up(one, -2)
    assert (one.position, one.fetch_offset, one.lookup, one.wants_fetch) == (UNKNOWN, UNKNOWN, -2, False)


def test_to_fetch_again_goes_back_to_the_position() -> None:
    subscription = Subscription()
    one = cursor(subscription, A, 5)
    subscription.arrived(one, fetched(A, 5))
    subscription.refetch(one)
    assert (one.position, one.fetch_offset, one.queued_bytes) == (5, 5, 0)


def test_only_who_has_a_position_and_no_pause_error_or_fetch_under_way_is_fetched() -> None:
    one = PartitionCursor(A)
    one.seek(0)
    assert one.wants_fetch
    one.asked_version = one.version
    assert not one.wants_fetch
    one.seek(1)
    assert one.wants_fetch, "what is under way is of no use any more"
    for name in ("is_paused", "is_revoked"):
        setattr(one, name, True)
        assert not one.wants_fetch
        setattr(one, name, False)
    one.error = ClientError("it is damaged")
    assert not one.wants_fetch


def test_those_who_have_something_take_turns() -> None:
    subscription = Subscription()
    one, two, three = (cursor(subscription, key) for key in (A, B, C))
    for each in (one, two, one, three):
        subscription.arrived(each, fetched(each.key, each.fetch_offset))
    assert [subscription.next_in_line() for _ in range(4)] == [one, two, three, None]
    subscription.line_up(one)
    subscription.line_up(one)
    subscription.line_up(two, first=True)
    assert [subscription.next_in_line() for _ in range(3)] == [two, one, None]


def test_who_is_paused_or_gone_loses_its_turn() -> None:
    subscription = Subscription()
    one, two = (cursor(subscription, key) for key in (A, B))
    for each in (one, two):
        subscription.arrived(each, fetched(each.key))
    one.is_paused = True
    subscription.remove([B])
    assert subscription.next_in_line() is None
    assert subscription.queued_bytes == one.queued_bytes
    one.is_paused = False
    subscription.line_up(one)
    assert subscription.next_in_line() is one


def test_who_was_just_fetched_is_fetched_last() -> None:
    subscription = Subscription()
    one = cursor(subscription, A)
    cursor(subscription, B)
    subscription.arrived(one, fetched(A))
    assert list(subscription.cursors) == [B, A]


def test_what_is_used_up_makes_room() -> None:
    subscription = Subscription()
    one = cursor(subscription, A)
    first, second = fetched(A), fetched(A, 3)
    subscription.arrived(one, first)
    subscription.arrived(one, second)
    subscription.used(one, first)
    assert subscription.queued_bytes == one.queued_bytes == second.size
    returned = Returned(A, [Message(*A, 0, 1, b"k", b"v")], 1, is_read=True)
    one.queued.appendleft(returned)
    subscription.used(one, returned)
    assert one.queued_bytes == second.size


def test_what_is_done_and_not_committed_can_be_committed() -> None:
    subscription = Subscription()
    one, two = (cursor(subscription, key, 5) for key in (A, B))
    subscription.add([C])
    two.committed = 5
    assert list(subscription.committable()) == [one]
    two.position, two.epoch = 8, 3
    assert list(subscription.committable()) == [one]
    two.came_back()
    assert list(subscription.committable()) == [one, two]
    assert (two.done, two.done_epoch) == (8, 3)


def test_the_line_can_be_looked_at_without_taking_a_turn() -> None:
    subscription = Subscription()
    one, two, three = (cursor(subscription, key) for key in (A, B, C))
    for each in (one, two, three):
        subscription.arrived(each, fetched(each.key))
    two.is_paused = True
    assert list(subscription.in_line()) == [one, three]
    assert subscription.next_in_line() is one
    assert list(subscription.in_line()) == [three]


def test_only_who_sets_the_position_moves_it_away() -> None:
    subscription = Subscription()
    one = cursor(subscription, A)
    moves = one.moves
    subscription.arrived(one, fetched(A))
    subscription.refetch(one)
    assert one.moves == moves
    subscription.seek(one, 2)
    subscription.look_up(one, COMMITTED)
    assert one.moves == moves + 2
