"""The table of log configs."""

from penstock.broker.config.log import LOG_CONFIGS
from tests.broker.config.kafka_facts import differences


def test_the_rows_say_what_kafka_says() -> None:
    assert differences("broker", LOG_CONFIGS) == []


def test_the_rows_say_which_knobs_of_kafkas_cleaner_there_is_nothing_to_turn_with() -> None:
    ignored = [key.name for key in LOG_CONFIGS if key.name.startswith("log.cleaner.") and not key.effect]
    policy = next(key for key in LOG_CONFIGS if key.name == "log.cleanup.policy")
    assert ignored == ["log.cleaner.threads", "log.cleaner.io.buffer.size", "log.cleaner.io.buffer.load.factor"]
    assert policy.takes_effect(("delete", "compact"))
