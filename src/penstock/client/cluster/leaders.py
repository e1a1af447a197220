"""Rules of what a client believes about leaders: a broker that refuses a request may name the leader (KIP-951), and
what has the newer leader epoch counts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias

from penstock.client.metadata import Broker, Partition, Topic, TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import ZERO_UUID
from penstock.protocol.schemas import fetch, produce

Refusal: TypeAlias = produce.PartitionProduceResponse | fetch.PartitionData
"""What a broker answers about one partition."""
Endpoint: TypeAlias = produce.NodeEndpoint | fetch.NodeEndpoint

# The errors with which brokers name the leader.
_NAMING: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


class LeaderHint(NamedTuple):
    """The leader of a partition, as a broker named it that refused a request."""

    topic_id: bytes
    """The id of the topic for which the request was."""
    partition: int
    leader: int
    leader_epoch: int
    broker: Broker | None = None
    """The leader's address, if the broker has reported it."""


def read_hint(topic_id: bytes, partition: int, answer: Refusal, endpoints: Iterable[Endpoint]) -> LeaderHint | None:
    """The leader that an answer names, if it names one and its epoch."""
    named = answer.current_leader
    if answer.error_code not in _NAMING or named.leader_id < 0 or named.leader_epoch < 0:
        return None
    found = (each for each in endpoints if each.node_id == named.leader_id)
    broker = next((Broker(each.node_id, each.host, each.port, each.rack) for each in found), None)
    return LeaderHint(topic_id, partition, named.leader_id, named.leader_epoch, broker)


def hints_of(response: fetch.FetchResponse, ids: Mapping[TopicPartition, bytes]) -> Iterator[tuple[str, LeaderHint]]:
    """The hints of a whole answer, each with the name of its topic; `ids` has the topic id of every partition that was
    asked for."""
    # The answer names its topics as the request did: by id from version 13 on, by name before.
    names = {topic_id: key.topic for key, topic_id in ids.items()}
    for topic in response.responses:
        for answer in topic.partitions:
            key = TopicPartition(topic.topic or names.get(topic.topic_id, ""), answer.partition_index)
            if answer.error_code and key in ids:
                hint = read_hint(ids[key], key.partition, answer, response.node_endpoints)
                if hint is not None:
                    yield key.topic, hint


def follow(topic: Topic, hint: LeaderHint) -> Topic | None:
    """The topic with the leader of a hint; None if the hint is not newer than what is known, or is about another
    topic that had the name."""
    if hint.topic_id != topic.topic_id or hint.partition >= len(topic.partitions):
        return None
    known = topic.partitions[hint.partition]
    if hint.leader_epoch <= known.leader_epoch:
        return None
    led = replace(known, leader=hint.leader, leader_epoch=hint.leader_epoch)
    return replace(topic, partitions=_with(topic.partitions, led))


def keep_newer(known: Topic | None, told: Topic) -> Topic:
    """What a broker says about a topic, with those leaders that are known already by a newer epoch: the broker may not
    have heard of them yet. Another topic of the same name has epochs of its own."""
    if known is None or known.topic_id != told.topic_id or told.topic_id == ZERO_UUID:
        return told
    newer = [
        replace(each, leader=before.leader, leader_epoch=before.leader_epoch)
        for before, each in zip(known.partitions, told.partitions, strict=False)
        if before.leader_epoch > each.leader_epoch >= 0
    ]
    return replace(told, partitions=_with(told.partitions, *newer)) if newer else told


def _with(partitions: Sequence[Partition], *changed: Partition) -> tuple[Partition, ...]:
    by_index = {each.index: each for each in changed}
    return tuple(by_index.get(each.index, each) for each in partitions)
