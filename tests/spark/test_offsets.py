"""Offsets as Spark keeps them: the same text for the same offsets, and nobody else's."""

import json

import pytest

from penstock.client.metadata import TopicPartition
from penstock.spark.offsets import Offsets, id_text, is_remade


def key(topic: str, partition: int) -> TopicPartition:
    return TopicPartition(topic, partition)


def test_equal_offsets_are_equal_text() -> None:
    """Offsets are compared as JSON strings."""
    one = Offsets({key("b", 10): 1, key("b", 2): 2, key("a", 0): 3}, {"b": "B", "a": "A"})
    other = Offsets({key("a", 0): 3, key("b", 2): 2, key("b", 10): 1}, {"a": "A", "b": "B"})

    assert json.dumps(one.to_json()) == json.dumps(other.to_json())
    assert json.dumps(one.to_json()) == json.dumps(Offsets.from_json(json.loads(json.dumps(one.to_json()))).to_json())
    assert list(one.to_json()["topics"]["b"]["offsets"]) == ["2", "10"]


def test_offsets_come_back_from_json() -> None:
    first = Offsets({key("a", 0): 0}, {"a": "A"}, is_initial=True)
    then = Offsets({key("a", 0): 5, key("a", 1): 2}, {"a": "A"}, begin=Offsets({key("a", 0): 0}, {"a": "A"}))

    lost = Offsets({key("a", 0): 5}, {"a": "A"}, gone=Offsets({key("b", 1): 2}, {"b": "B"}))
    unsaid = Offsets({}, is_initial=True, error="nobody knows")

    for each in (first, then, lost, unsaid, Offsets({})):
        assert Offsets.from_json(json.loads(json.dumps(each.to_json()))) == each


def test_a_topic_without_an_id_has_none_afterwards() -> None:
    assert Offsets.from_json(Offsets({key("a", 0): 1}).to_json()).topic_ids == {}


@pytest.mark.parametrize("read", [{}, {"version": 1}, {"a": {"0": 1}}, {"version": 1, "topics": {"a": {"0": 1}}}])
def test_the_offsets_of_another_source_are_refused(read: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="no offsets of this source"):
        Offsets.from_json(read)


def test_the_offsets_of_a_later_version_are_refused() -> None:
    with pytest.raises(ValueError, match="of version 2, and this penstock knows 1"):
        Offsets.from_json({"version": 2, "topics": {}})


def test_topics_can_be_forgotten() -> None:
    both = Offsets({key("a", 0): 1, key("b", 0): 2}, {"a": "A", "b": "B"})

    assert both.without(["a"]) == Offsets({key("b", 0): 2}, {"b": "B"})


def test_some_partitions_alone_keep_the_ids_of_their_topics() -> None:
    both = Offsets({key("a", 0): 1, key("a", 1): 3, key("b", 0): 2}, {"a": "A", "b": "B"})

    assert both.only([key("a", 1), key("c", 0)]) == Offsets({key("a", 1): 3}, {"a": "A"})


def test_what_is_gone_is_remembered() -> None:
    now = Offsets({key("a", 0): 1}, {"a": "A"}, gone=Offsets({key("a", 1): 3, key("b", 0): 2}, {"a": "A", "b": "B"}))

    assert now.remembered == Offsets({key("a", 0): 1, key("a", 1): 3, key("b", 0): 2}, {"a": "A", "b": "B"})
    assert now.remembered.remembered == now.remembered


def test_only_two_ids_make_two_topics() -> None:
    assert is_remade("A", "B")
    assert not any(is_remade(*ids) for ids in [("A", "A"), ("A", ""), ("", "A"), ("", "")])


def test_an_id_is_written_as_kafka_writes_it() -> None:
    assert id_text(bytes(16)) == ""
    assert id_text(bytes(range(16))) == "AAECAwQFBgcICQoLDA0ODw"
