"""Settings by dotted names and by keywords."""

import re
from typing import Any

import pytest

from penstock.client.settings import (
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
    SettingsError,
    read_settings,
)
from penstock.protocol.compression import Codec


def test_dotted_names_and_keywords_say_the_same() -> None:
    dotted = read_settings(ProducerSettings, {"bootstrap.servers": "b:1", "linger.ms": 7, "compression.type": "lz4"})
    keywords = read_settings(
        ProducerSettings, None, {"bootstrap_servers": "b:1", "linger_ms": 7, "compression_type": "lz4"}
    )
    assert dotted == keywords
    assert dotted.linger_ms == 7
    assert dotted.codec is Codec.LZ4


def test_values_may_be_text_as_in_a_properties_file() -> None:
    settings = read_settings(
        ConsumerSettings,
        {
            "max.poll.records": "20",
            "enable.auto.commit": "false",
            "partition.assignment.strategy": "roundrobin, range",
        },
    )
    assert settings.max_poll_records == 20
    assert settings.enable_auto_commit is False
    assert settings.partition_assignment_strategy == ["roundrobin", "range"]


def test_several_brokers_may_be_a_list() -> None:
    assert read_settings(ClientSettings, {"bootstrap.servers": ["a:1", "b:2"]}).bootstrap_servers == "a:1,b:2"


@pytest.mark.parametrize("acks", ["all", -1, "-1", 1, 0, "0"], ids=repr)
def test_acks_have_all_the_forms_that_clients_know(acks: object) -> None:
    settings = read_settings(ProducerSettings, {"acks": acks, "enable.idempotence": False})
    assert settings.acks_on_wire == (-1 if acks in ("all", -1, "-1") else int(str(acks)))


def test_a_misspelt_name_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(SettingsError, match=r"linger\.sm is no setting of a producer: did you mean linger\.ms"):
        read_settings(ProducerSettings, {"linger.sm": 3})


def test_a_dict_of_another_client_or_for_both_sides_can_be_used_as_it_is() -> None:
    theirs: dict[str, Any] = {
        "key.serializer": "org.apache.kafka.common.serialization.StringSerializer",
        "socket.nagle.disable": True,
        "group.id": "g",
        "linger.ms": 9,
    }
    assert read_settings(ProducerSettings, theirs).linger_ms == 9
    assert read_settings(ConsumerSettings, theirs).group_id == "g"


def test_a_setting_that_is_set_twice_and_differently_is_refused() -> None:
    assert read_settings(ProducerSettings, {"linger.ms": 3}, {"linger_ms": 3}).linger_ms == 3
    with pytest.raises(SettingsError, match=r"linger\.ms is set twice, to 3 and to 4"):
        read_settings(ProducerSettings, {"linger.ms": 3}, {"linger_ms": 4})
    with pytest.raises(SettingsError, match=r"sasl\.password is set twice: leave"):
        read_settings(ProducerSettings, {"sasl.password": "abc"}, {"sasl_password": "abd"})


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (ProducerSettings, "acks", "some"),
        (ProducerSettings, "acks", 1),  # Idempotence asks for all.
        (ProducerSettings, "linger.ms", -1),
        (ProducerSettings, "batch.size", "many"),
        (ProducerSettings, "buffer.memory", 0),
        (ProducerSettings, "max.request.size", 0),
        (ProducerSettings, "compression.type", "brotli"),
        (ProducerSettings, "max.in.flight.requests.per.connection", 6),
        (ProducerSettings, "retries", 0),
        (ConsumerSettings, "max.poll.records", 0),
        (ConsumerSettings, "auto.offset.reset", "middle"),
        (ConsumerSettings, "heartbeat.interval.ms", 45_000),
        (ConsumerSettings, "group.id", ""),
        (ConsumerSettings, "group.instance.id", "one"),
        (ConsumerSettings, "fetch.max.bytes", 0),
        (ConsumerSettings, "max.partition.fetch.bytes", 0),
        (ConsumerSettings, "queued.max.bytes", 0),
        (ConsumerSettings, "fetch.min.bytes", -1),
        (ConsumerSettings, "fetch.max.wait.ms", -1),
    ],
)
def test_a_value_that_a_setting_cannot_have_is_refused_by_name(
    kind: type[ClientSettings], name: str, value: object
) -> None:
    with pytest.raises(SettingsError, match=name.replace(".", r"\.")):
        read_settings(kind, {name: value})


def test_a_profile_sets_what_the_user_has_not_set() -> None:
    latency, throughput = (read_settings(ProducerSettings, profile=each) for each in ("latency", "throughput"))
    assert latency.linger_ms == 0
    assert throughput.linger_ms > 0
    assert throughput.batch_size > latency.batch_size
    assert read_settings(ProducerSettings, {"linger.ms": 3}, profile="throughput").linger_ms == 3
    consumer = read_settings(ConsumerSettings, profile="throughput")
    assert consumer.fetch_min_bytes > read_settings(ConsumerSettings, profile="latency").fetch_min_bytes


def test_a_delivery_sets_what_its_name_promises_and_refuses_what_would_break_it() -> None:
    at_most_once = read_settings(ProducerSettings, delivery="at_most_once")
    assert (at_most_once.acks, at_most_once.retries, at_most_once.enable_idempotence) == ("0", 0, False)
    at_least_once = read_settings(ProducerSettings, {"acks": -1}, delivery="at_least_once")
    assert (at_least_once.acks_on_wire, at_least_once.enable_idempotence) == (-1, True)
    with pytest.raises(SettingsError, match="delivery='at_least_once' means acks=all, not 1"):
        read_settings(ProducerSettings, {"acks": 1}, delivery="at_least_once")


def test_exactly_once_is_refused_until_there_are_transactions() -> None:
    for kind in (ProducerSettings, ConsumerSettings):
        with pytest.raises(SettingsError, match="needs transactions, which are not there yet"):
            read_settings(kind, delivery="exactly_once")
    with pytest.raises(SettingsError, match="needs transactions, which are not there yet"):
        read_settings(ProducerSettings, {"transactional.id": "t"})


def test_names_of_profiles_and_deliveries_that_nobody_knows_are_refused() -> None:
    with pytest.raises(SettingsError, match="'latency', 'throughput'"):
        read_settings(ProducerSettings, profile="speed")  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="'at_most_once', 'at_least_once'"):
        read_settings(ProducerSettings, delivery="twice")  # type: ignore[arg-type]


def test_what_is_set_about_security_is_read_by_its_own_rules() -> None:
    settings = read_settings(ClientSettings, {"security.protocol": "SSL"})
    assert settings.security is not None
    assert read_settings(ClientSettings).security is None
    with pytest.raises(SettingsError, match=r"security\.protocol"):
        read_settings(ClientSettings, {"security.protocol": "ROT13"})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"compression_type": "5"}, "but must be one of 'none', 'gzip', 'snappy', 'lz4', 'zstd'"),
        ({"acks": 5}, "acks is '5', but must be one of 'all', '-1', '0', '1'"),
        ({"linger_ms": "soon"}, "linger.ms is 'soon', but must be a number"),
        ({"batch_size": 1.5}, "batch.size is 1.5, but must be a whole number"),
        ({"compression_level": "high"}, "compression.level is 'high', but must be a whole number"),
        ({"enable_idempotence": "maybe"}, "but must be true or false"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_those_that_can(given: dict[str, Any], told: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(told)):
        read_settings(ProducerSettings, {}, given)
