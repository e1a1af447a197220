"""Messages and their ids."""

import pytest

from penstock.client.message import Message, MessageId, RecordMetadata
from penstock.client.metadata import TopicPartition


def test_a_message_id_prints_as_topic_partition_and_offset_and_is_read_back() -> None:
    message_id = MessageId("my-topic.v2", 12, 345)
    assert str(message_id) == "my-topic.v2-12@345"
    assert MessageId.parse("my-topic.v2-12@345") == message_id
    assert message_id.topic_partition == TopicPartition("my-topic.v2", 12)


@pytest.mark.parametrize("text", ["", "orders", "orders-3", "orders@17", "orders-03@17", "orders-3@-1", "ord ers-3@17"])
def test_what_is_no_message_id_is_refused_with_the_form_that_one_has(text: str) -> None:
    with pytest.raises(ValueError, match="TOPIC-PARTITION@OFFSET"):
        MessageId.parse(text)


def test_a_sent_message_has_the_id_under_which_it_can_be_read() -> None:
    assert RecordMetadata("orders", 1, 2, 3).message_id == MessageId("orders", 1, 2)


def test_a_message_tells_where_it_is_and_the_last_header_of_a_name() -> None:
    headers = (("trace", b"1"), ("other", None), ("trace", b"2"))
    message = Message("orders", 1, 2, 3, "key", "value", headers)
    assert message.id == MessageId("orders", 1, 2)
    assert message.topic_partition == TopicPartition("orders", 1)
    assert message.header("trace") == b"2"
    assert message.header("other") is None
    assert message.header("missing") is None
