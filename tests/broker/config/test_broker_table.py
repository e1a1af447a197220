"""All configs of a broker."""

import re

from penstock.broker.config.broker_table import ALIASES, BROKER_CONFIGS, FAMILIES, KAFKA_DEFAULTS, ORDERED
from tests.broker.config.kafka_facts import NOT_IN_KAFKAS_TABLE, ON_PURPOSE, facts


def test_every_public_config_of_kafka_is_known() -> None:
    assert facts("broker").keys() - BROKER_CONFIGS.keys() == set()
    assert BROKER_CONFIGS.keys() - facts("broker").keys() == NOT_IN_KAFKAS_TABLE


def test_no_name_is_in_two_families() -> None:
    assert len(BROKER_CONFIGS) == sum(len(family) for family in FAMILIES.values())


def test_names_are_such_that_a_variable_of_the_environment_tells_them() -> None:
    assert [name for name in BROKER_CONFIGS if re.fullmatch(r"[a-z0-9]+(\.[a-z0-9]+)*", name) is None] == []


def test_each_config_is_explained_by_whole_sentences() -> None:
    assert [key.name for key in BROKER_CONFIGS.values() if not re.match(r"[A-Z`l].*\.$", key.documentation)] == []


def test_rules_between_configs_name_configs_that_exist() -> None:
    named = {name for names in (*ALIASES, *ORDERED) for name in names} | KAFKA_DEFAULTS.keys()
    assert named - BROKER_CONFIGS.keys() == set()


def test_defaults_keep_to_the_order_that_is_asked_of_users() -> None:
    for smaller, larger in ORDERED:
        low, high = BROKER_CONFIGS[smaller].default, BROKER_CONFIGS[larger].default
        assert isinstance(low, int)
        assert isinstance(high, int)
        assert low <= high, smaller


def test_kafkas_own_default_is_noted_wherever_ours_is_another() -> None:
    other = {name for name, columns in ON_PURPOSE.items() if "default" in columns}
    assert other == KAFKA_DEFAULTS.keys()
