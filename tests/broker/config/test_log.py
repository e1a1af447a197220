"""The table of log configs."""

from penstock.broker.config.log import LOG_CONFIGS
from tests.broker.config.kafka_facts import differences


def test_the_rows_say_what_kafka_says() -> None:
    assert differences("broker", LOG_CONFIGS) == []


def test_no_row_promises_what_compaction_would_do() -> None:
    working = [key.name for key in LOG_CONFIGS if key.name.startswith("log.cleaner.") and key.effect]
    policy = next(key for key in LOG_CONFIGS if key.name == "log.cleanup.policy")
    assert working == []
    assert policy.takes_effect(("delete",))
    assert not policy.takes_effect(("delete", "compact"))
