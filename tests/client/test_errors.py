"""Errors: what they say, and how the outcomes of many operations become one."""

import pytest

from penstock.client.errors import (
    BadReplyError,
    BrokerError,
    ClientError,
    TimedOutError,
    UnknownGroupError,
    UnknownPartitionError,
    UnknownTopicError,
    broker_error,
    group_outcome,
    outcome,
    topic_outcome,
    unanswered,
    unwrap,
)
from penstock.protocol.error_codes import ErrorCode


@pytest.mark.parametrize("code", [code for code in ErrorCode if code is not ErrorCode.NONE])
def test_every_code_makes_an_error_that_says_what_it_is_about(code: ErrorCode) -> None:
    error = broker_error(code, "orders-0")
    assert error.code is code
    assert str(error).startswith("orders-0: ")
    assert str(error).endswith(f" ({code.name})")
    assert len(str(error)) > len(f"orders-0:  ({code.name})")


def test_the_brokers_own_words_come_first_and_advice_behind_them() -> None:
    error = broker_error(ErrorCode.MESSAGE_TOO_LARGE, "a-0", "2 bytes are too many.")
    assert str(error) == (
        "a-0: 2 bytes are too many; send smaller batches, or raise the topic's max.message.bytes (MESSAGE_TOO_LARGE)"
    )


def test_a_code_from_the_future_is_told_as_it_is() -> None:
    error = broker_error(9999, "orders-0", "too many fish")
    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "error code 9999, which this client does not know: too many fish" in str(error)


def test_a_broker_that_gave_up_leaves_the_outcome_unknown_and_one_that_refused_does_not() -> None:
    assert BrokerError(ErrorCode.REQUEST_TIMED_OUT, "a").outcome_unknown
    assert BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "a").outcome_unknown
    assert not BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS, "a").outcome_unknown
    assert not BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "a").outcome_unknown


def test_an_unknown_topic_names_those_that_look_like_it() -> None:
    assert "did you mean 'orders' or 'border'?" in str(UnknownTopicError("order", ["orders", "border"]))
    assert "did you mean" not in str(UnknownTopicError("order"))


def test_an_unknown_partition_says_how_many_there_are() -> None:
    assert "has 3 partitions" in str(UnknownPartitionError("orders", 7, 3))


def test_an_outcome_is_the_value_or_the_error_of_its_code() -> None:
    assert outcome(0, "a", None, 5) == 5
    error = outcome(ErrorCode.INVALID_CONFIG, "a", "no such config", 5)
    assert isinstance(error, BrokerError)
    assert error.code is ErrorCode.INVALID_CONFIG


def test_that_another_broker_is_the_controller_is_raised_at_once() -> None:
    with pytest.raises(BrokerError, match="NOT_CONTROLLER"):
        outcome(ErrorCode.NOT_CONTROLLER, "a", None, 5)


def test_an_unknown_topic_has_an_error_of_its_own() -> None:
    assert isinstance(topic_outcome("a", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None, 5), UnknownTopicError)
    assert topic_outcome("a", 0, None, 5) == 5


def test_an_unknown_group_has_an_error_of_its_own() -> None:
    error = group_outcome("biling", ErrorCode.GROUP_ID_NOT_FOUND, None, 5)
    assert isinstance(error, UnknownGroupError)
    assert group_outcome("billing", 0, None, 5) == 5
    assert "group 'biling': there is no such group; did you mean 'billing'?" in str(
        UnknownGroupError("biling", ["billing"])
    )


def test_what_a_broker_leaves_out_has_an_unknown_outcome() -> None:
    assert isinstance(unanswered("topic 'a'"), BadReplyError)
    assert unanswered("topic 'a'").outcome_unknown


def test_unwrapping_gives_the_values_if_all_succeeded() -> None:
    assert unwrap({"a": 1, "b": None}) == {"a": 1, "b": None}


def test_unwrapping_raises_the_first_error_and_counts_the_others() -> None:
    outcomes: dict[str, int | ClientError] = {"a": 1, "b": TimedOutError("late"), "c": TimedOutError("later")}
    with pytest.raises(TimedOutError, match="late") as caught:
        unwrap(outcomes)
    assert caught.value.__notes__ == ["1 more of 3 failed"]


def test_a_message_that_names_what_it_is_about_is_not_named_twice() -> None:
    error = BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, "topic 'orders'", "Topic 'orders' already exists.")
    assert str(error).startswith("Topic 'orders' already exists; choose another name")
    other = BrokerError(ErrorCode.INVALID_CONFIG, "topic 'orders'", "retention.ms: soon is not a whole number")
    assert str(other).startswith("topic 'orders': retention.ms: soon")


def test_one_partition_is_not_many() -> None:
    assert "the topic has one partition, number 0" in str(UnknownPartitionError("orders", 1, 1))
    assert "the topic has 2 partitions, numbered from 0" in str(UnknownPartitionError("orders", 2, 2))
