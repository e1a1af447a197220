"""Values of configs: text in, typed values out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.config.broker_table import BROKER_CONFIGS
from penstock.broker.config.rows import (
    ANY,
    BOOLEAN,
    DOUBLE,
    IGNORED,
    INT,
    ITEMS,
    LIST,
    LONG,
    PASSWORD,
    READ_ONLY,
    SHORT,
    STRING,
    any_of,
    at_least,
    one_of,
    works_for,
)
from penstock.broker.config.topic_table import TOPIC_CONFIGS
from penstock.broker.config.values import (
    Allowed,
    ConfigError,
    ConfigKey,
    ConfigType,
    ConfigValue,
    Effect,
    OneOf,
    Range,
    Synonym,
    near_name,
)


def key(
    type_: ConfigType, *, allowed: Allowed = ANY, default: ConfigValue = None, effect: Effect = IGNORED
) -> ConfigKey:
    return ConfigKey("some.name", type_, default, allowed, READ_ONLY, effect, "A sentence.")


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (BOOLEAN, "true", True),
        (BOOLEAN, " FALSE ", False),
        (INT, "+7", 7),
        (INT, " -2147483648 ", -(1 << 31)),
        (SHORT, "32767", 32767),
        (LONG, "9223372036854775807", (1 << 63) - 1),
        (DOUBLE, "0.5", 0.5),
        (DOUBLE, "1.7976931348623157E308", 1.7976931348623157e308),
        (DOUBLE, ".5", 0.5),
        (LIST, "a, b ,c", ("a", "b", "c")),
        (LIST, "", ()),
        (STRING, " text with spaces ", "text with spaces"),
        (PASSWORD, "secret", "secret"),
    ],
)
def test_text_becomes_a_value_as_in_kafka(type_: ConfigType, text: str, value: ConfigValue) -> None:
    parsed = key(type_).parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("type_", "text", "message"),
    [
        (BOOLEAN, "yes", "yes is neither true nor false"),
        (INT, "2147483648", "2147483648 is out of range; the largest number is 2147483647"),
        (SHORT, "40000", "the largest number is 32767"),
        (LONG, "9223372036854775808", "out of range"),
        (LONG, "9" * 5000, "is not a whole number"),
        (INT, "1_000", "1_000 is not a whole number"),
        (INT, "1e3", "1e3 is not a whole number"),
        (INT, "٣", "is not a whole number"),
        (INT, "", "an empty value is not a whole number"),
        (DOUBLE, "NaN", "NaN is not a number"),
        (DOUBLE, "1e999", "1e999 is not a number"),
        (DOUBLE, "0x1p3", "is not a number"),
    ],
)
def test_text_that_is_no_value_of_the_type_is_refused_by_name(type_: ConfigType, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        key(type_).parse(text)
    assert str(caught.value).startswith("some.name: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("type_", "allowed", "text", "message"),
    [
        (INT, at_least(1), "0", "0 is out of range; set it to at least 1"),
        (INT, Range(1, 9, also=-1), "0", "0 is out of range; set it to 1 to 9, or -1"),
        (
            STRING,
            one_of("CreateTime", "LogAppendTime"),
            "createtime",
            "is none of CreateTime, LogAppendTime; did you mean CreateTime?",
        ),
        (
            LIST,
            any_of("compact", "delete"),
            "delete,compat",
            "has 'compat', which is none of compact, delete; did you mean compact?",
        ),
        (LIST, any_of("compact", "delete"), "wrong", "wrong is none of compact, delete"),
        (LIST, any_of(may_be_empty=False), "", "an empty value is empty; name at least one"),
        (LIST, ITEMS, "a,,b", "has an empty item; remove the extra comma"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused_with_what_is(
    type_: ConfigType, allowed: Allowed, text: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        key(type_, allowed=allowed).parse(text)
    assert message in str(caught.value)


def test_the_value_beside_a_range_is_allowed() -> None:
    assert key(INT, allowed=Range(1, 9, also=-1)).parse("-1") == -1


def test_case_counts_only_where_kafka_lets_it() -> None:
    assert key(STRING, allowed=OneOf(("upgrade",), ignore_case=True)).parse("UPGRADE") == "UPGRADE"
    with pytest.raises(ConfigError):
        key(STRING, allowed=OneOf(("upgrade",))).parse("UPGRADE")


def test_every_default_is_a_value_that_its_row_allows() -> None:
    for row in (*BROKER_CONFIGS.values(), *TOPIC_CONFIGS.values()):
        text = row.format(row.default)
        assert row.default is None or (text is not None and row.parse(text) == row.default), row.name


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_survives_as_text(number: float) -> None:
    row = key(DOUBLE)
    text = row.format(number)
    assert text is not None
    assert row.parse(text) == number


def test_values_are_written_as_kafka_writes_them() -> None:
    assert key(BOOLEAN).format(True) == "true"
    assert key(LIST).format(("a", "b")) == "a,b"
    assert key(DOUBLE).format(1.7976931348623157e308) == "1.7976931348623157E308"
    assert key(LONG).format(-1) == "-1"
    assert key(STRING).format(None) is None


def test_only_the_values_that_work_take_effect() -> None:
    row = key(STRING, effect=works_for("producer"))
    assert row.takes_effect("producer")
    assert not row.takes_effect("zstd")
    assert not key(STRING).takes_effect("anything")


def test_a_list_takes_effect_if_all_of_it_does() -> None:
    row = key(LIST, effect=works_for("delete"))
    assert row.takes_effect(("delete",))
    assert row.takes_effect(())
    assert not row.takes_effect(("delete", "compact"))


def test_a_synonym_in_hours_becomes_milliseconds() -> None:
    assert Synonym("log.roll.hours", 3_600_000).convert(2) == 7_200_000
    assert Synonym("log.roll.hours", 3_600_000).convert(None) is None
    assert Synonym("log.cleanup.policy").convert(("delete",)) == ("delete",)


def test_the_near_name_is_found_through_typing_mistakes_and_case() -> None:
    names = ["log.segment.bytes", "log.retention.bytes"]
    assert near_name("log.segement.bytes", names) == "log.segment.bytes"
    assert near_name("LOG.SEGMENT.BYTES", names) == "log.segment.bytes"
    assert near_name("zookeeper.connect", names) is None


def test_an_error_says_where_if_that_is_known() -> None:
    assert str(ConfigError("a.b", "is wrong", source="file line 3")) == "file line 3: a.b: is wrong"
    assert str(ConfigError("a.b", "is wrong")) == "a.b: is wrong"
