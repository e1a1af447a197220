"""What is believed about leaders: the newer leader epoch counts."""

from typing import Any

import pytest

from penstock.client.cluster.leaders import LeaderHint, follow, hints_of, keep_newer, read_hint
from penstock.client.metadata import Broker, Partition, Topic, TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import ZERO_UUID
from penstock.protocol.schemas import fetch, produce

ID = b"orders----------"


def topic(*leaders: tuple[int, int], topic_id: bytes = ID) -> Topic:
    """Leader and leader epoch of each partition."""
    partitions = (Partition(number, *each, (0, 1), (0,)) for number, each in enumerate(leaders))
    return Topic("orders", topic_id, False, tuple(partitions))


def leaders(described: Topic | None) -> list[tuple[int, int]]:
    assert described is not None
    return [(each.leader, each.leader_epoch) for each in described.partitions]


def refusal(leader: int, epoch: int, code: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> fetch.PartitionData:
    named = fetch.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
    return fetch.PartitionData(error_code=code, current_leader=named)


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH])
def test_a_refusal_names_the_leader_and_its_address(code: ErrorCode) -> None:
    endpoints = [
        fetch.NodeEndpoint(node_id=1, host="one", port=9093, rack="r1"),
        fetch.NodeEndpoint(node_id=2, host="two", port=9094),
    ]
    expected = LeaderHint(ID, 3, 1, 6, Broker(1, "one", 9093, "r1"))
    assert read_hint(ID, 3, refusal(1, 6, code), endpoints) == expected
    assert read_hint(ID, 3, refusal(1, 6, code), []) == expected._replace(broker=None)


def test_a_refused_batch_names_the_leader_as_a_refused_fetch_does() -> None:
    answer = produce.PartitionProduceResponse(
        error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
        current_leader=produce.LeaderIdAndEpoch(leader_id=1, leader_epoch=6),
    )
    endpoints = [produce.NodeEndpoint(node_id=1, host="one", port=9093)]
    assert read_hint(ID, 0, answer, endpoints) == LeaderHint(ID, 0, 1, 6, Broker(1, "one", 9093))


@pytest.mark.parametrize(
    "answer",
    [
        refusal(-1, 6),
        refusal(1, -1),
        refusal(1, 6, ErrorCode.NONE),
        refusal(1, 6, ErrorCode.UNKNOWN_LEADER_EPOCH),
        fetch.PartitionData(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_what_is_not_said_in_full_is_no_hint(answer: fetch.PartitionData) -> None:
    assert read_hint(ID, 0, answer, []) is None


def test_a_newer_hint_changes_its_partition_alone() -> None:
    known = topic((0, 5), (0, 5))
    assert leaders(follow(known, LeaderHint(ID, 1, 1, 6))) == [(0, 5), (1, 6)]
    assert leaders(known) == [(0, 5), (0, 5)]


@pytest.mark.parametrize("epoch", [4, 5])
def test_an_older_hint_is_not_taken(epoch: int) -> None:
    assert follow(topic((0, 5)), LeaderHint(ID, 0, 1, epoch)) is None


@pytest.mark.parametrize("hint", [LeaderHint(b"another topic id", 0, 1, 6), LeaderHint(ID, 1, 1, 6)])
def test_a_hint_about_another_topic_of_the_name_or_an_unknown_partition_is_not_taken(hint: LeaderHint) -> None:
    assert follow(topic((0, 5)), hint) is None


def test_metadata_of_a_broker_that_lags_does_not_bring_an_old_leader_back() -> None:
    described = keep_newer(topic((1, 6), (0, 5), (0, 2)), topic((0, 5), (2, 6), (-1, 2), (0, 0)))
    assert leaders(described) == [(1, 6), (2, 6), (-1, 2), (0, 0)]


@pytest.mark.parametrize(
    ("known", "told"),
    [
        (None, topic((0, 5))),
        (topic((1, 6), topic_id=b"another topic id"), topic((0, 0))),
        (topic((1, 6), topic_id=ZERO_UUID), topic((0, 5), topic_id=ZERO_UUID)),
        (topic((1, 6)), topic((0, -1))),
    ],
)
def test_epochs_that_cannot_be_compared_are_not(known: Topic | None, told: Topic) -> None:
    assert keep_newer(known, told) is told


@pytest.mark.parametrize("names", [{"topic": "orders"}, {"topic_id": ID}])
def test_the_hints_of_an_answer_come_with_their_topics(names: dict[str, Any]) -> None:
    answers = [refusal(1, 6), fetch.PartitionData(partition_index=1), refusal(2, 7), refusal(2, 8)]
    for index, answer in enumerate(answers):
        answer.partition_index = index
    response = fetch.FetchResponse(responses=[fetch.FetchableTopicResponse(partitions=answers, **names)])
    asked = {TopicPartition("orders", number): ID for number in range(3)}
    assert list(hints_of(response, asked)) == [
        ("orders", LeaderHint(ID, 0, 1, 6)),
        ("orders", LeaderHint(ID, 2, 2, 7)),
    ]
