"""Configs set, deleted, appended to, subtracted from and replaced."""

import pytest

from penstock.machines.cluster_records import ConfigChanged
from penstock.machines.config_changes import (
    MAX_CONFIG_BYTES,
    ConfigChange,
    ConfigOperation,
    changed,
    given,
    records,
    replaced,
)
from penstock.machines.decisions import Refused
from penstock.protocol.error_codes import ErrorCode
from tests.machines.config_rules import SomeConfigs

RULES = SomeConfigs()
SET, DELETE, APPEND, SUBTRACT = ConfigOperation


def change(current: dict[str, str], *changes: tuple[str, int, str | None]) -> dict[str, str]:
    return changed(current, [ConfigChange(*each) for each in changes], "topic", RULES)


def test_a_change_leaves_the_others_alone() -> None:
    current = {"retention.ms": "1", "cleanup.policy": "compact"}

    assert change(current, ("retention.ms", SET, "2")) == {"retention.ms": "2", "cleanup.policy": "compact"}
    assert change(current, ("retention.ms", DELETE, None)) == {"cleanup.policy": "compact"}
    assert change(current) == current
    assert current == {"retention.ms": "1", "cleanup.policy": "compact"}


def test_deleting_what_is_not_set_is_no_error() -> None:
    assert change({}, ("no.such.config", DELETE, "whatever")) == {}


@pytest.mark.parametrize(
    ("current", "operation", "value", "result"),
    [
        ({}, APPEND, "compact", "delete,compact"),
        ({}, APPEND, "delete", "delete"),
        ({"cleanup.policy": "compact"}, APPEND, "delete, compact", "compact,delete"),
        ({"cleanup.policy": "compact,delete"}, SUBTRACT, "delete", "compact"),
        ({"cleanup.policy": "compact"}, SUBTRACT, "delete", "compact"),
    ],
)
def test_items_are_appended_to_and_subtracted_from_a_list_or_its_default(
    current: dict[str, str], operation: ConfigOperation, value: str, result: str
) -> None:
    assert change(current, ("cleanup.policy", operation, value)) == {"cleanup.policy": result}


@pytest.mark.parametrize(
    ("changes", "code", "reason"),
    [
        ([("retention.ms", SET, "soon")], ErrorCode.INVALID_CONFIG, "is a number"),
        ([("no.such.config", SET, "1")], ErrorCode.INVALID_CONFIG, "no topic config"),
        ([("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG, "is not a list"),
        ([("retention.ms", SUBTRACT, "1")], ErrorCode.INVALID_CONFIG, "is not a list"),
        ([("no.such.config", APPEND, "1")], ErrorCode.INVALID_CONFIG, "is not a list"),
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST, "delete it"),
        ([("retention.ms", 7, "1")], ErrorCode.INVALID_REQUEST, "no config operation 7"),
        ([("retention.ms", SET, "1"), ("retention.ms", DELETE, None)], ErrorCode.INVALID_REQUEST, "named twice"),
    ],
)
def test_what_cannot_be_done_is_refused(
    changes: list[tuple[str, int, str | None]], code: ErrorCode, reason: str
) -> None:
    with pytest.raises(Refused, match=reason) as caught:
        change({}, *changes)
    assert caught.value.code is code


def test_a_long_list_is_no_burden() -> None:
    value = ",".join(str(number) for number in range(100_000))

    class Anything(SomeConfigs):
        def problem(self, *_: object) -> None:
            return None

    result = changed({"cleanup.policy": value}, [ConfigChange("cleanup.policy", SUBTRACT, value)], "topic", Anything())

    assert result == {"cleanup.policy": ""}


def test_replacing_forgets_what_is_not_named() -> None:
    assert replaced([("retention.ms", "2")], "topic", RULES) == {"retention.ms": "2"}
    assert replaced([], "topic", RULES) == {}


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ([("retention.ms", "soon")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", "1"), ("retention.ms", "1")], ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_replacement_is_checked(values: list[tuple[str, str | None]], code: ErrorCode) -> None:
    with pytest.raises(Refused) as caught:
        replaced(values, "topic", RULES)
    assert caught.value.code is code


def test_the_configs_of_something_new_have_values() -> None:
    assert given({"retention.ms": "1"}, "topic", RULES) == {"retention.ms": "1"}
    with pytest.raises(Refused, match="has no value") as caught:
        given({"retention.ms": None}, "topic", RULES)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    with pytest.raises(Refused, match="is a number"):
        given({"retention.ms": "x"}, "topic", RULES)


def test_only_what_differs_is_recorded() -> None:
    old, new = {"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "5", "d": "4"}

    assert records("topic", "orders", old, new) == [ConfigChanged("topic", "orders", {"c": None, "b": "5", "d": "4"})]
    assert records("cluster", "", old, old) == []


def test_configs_that_no_entry_of_the_log_could_hold_are_refused() -> None:
    huge = "0" * MAX_CONFIG_BYTES + "1"

    set_it = [ConfigChange("retention.ms", ConfigOperation.SET, huge)]
    with pytest.raises(Refused, match="a topic has at most 65536; shorten them") as caught:
        changed({}, set_it, "topic", RULES)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    with pytest.raises(Refused, match="shorten"):
        replaced([("retention.ms", huge)], "topic", RULES)
    with pytest.raises(Refused, match="shorten"):
        given({"retention.ms": huge}, "topic", RULES)
