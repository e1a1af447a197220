"""What each of several brokers on one host is started with."""

import pytest

from penstock.broker.config.values import ConfigError
from penstock.supervisor.plan import command_line, one_disk_warnings, plan_brokers

DATA = {"log.dirs": "/data"}


def listeners(text: str, count: int = 3, **others: str) -> list[str]:
    plans = plan_brokers({**DATA, "listeners": text, **others}, count)
    return [plan.settings["listeners"] for plan in plans]


def refusal(values: dict[str, str], count: int = 3) -> str:
    with pytest.raises(ConfigError) as refused:
        plan_brokers({**DATA, **values}, count)
    return str(refused.value)


def test_brokers_are_numbered_from_0_and_broker_0_has_the_folder_of_a_broker_alone() -> None:
    plans = plan_brokers(DATA, 3)
    assert [plan.node_id for plan in plans] == [0, 1, 2]
    assert [plan.data_path for plan in plans] == ["/data", "/data/1", "/data/2"]
    assert [plan.config.node_id for plan in plans] == [0, 1, 2]


def test_without_listeners_ports_count_from_the_default() -> None:
    assert [plan.config.listeners[0].port for plan in plan_brokers(DATA, 3)] == [9092, 9093, 9094]


def test_each_broker_has_the_next_port_of_each_listener() -> None:
    assert listeners("127.0.0.1:9092") == ["127.0.0.1:9092", "127.0.0.1:9093", "127.0.0.1:9094"]
    both = listeners(
        "A://127.0.0.1:9092, B://[::1]:9192", 2, **{"listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"}
    )
    assert both == ["A://127.0.0.1:9092,B://[::1]:9192", "A://127.0.0.1:9093,B://[::1]:9193"]


def test_any_free_port_is_any_free_port_for_every_broker() -> None:
    assert listeners("127.0.0.1:0") == ["127.0.0.1:0"] * 3


def test_ports_can_be_named_one_by_one() -> None:
    assert listeners("127.0.0.1:9092,9192,9292") == ["127.0.0.1:9092", "127.0.0.1:9192", "127.0.0.1:9292"]


def test_a_list_of_ports_has_one_for_each_broker() -> None:
    message = refusal({"listeners": "127.0.0.1:9092,9192"})
    assert "2 ports for 3 brokers" in message


def test_advertised_addresses_and_metrics_count_like_listeners() -> None:
    values = {"advertised.listeners": "PLAINTEXT://queue.example:19092", "penstock.metrics.listen": "127.0.0.1:9404"}
    plans = plan_brokers({**DATA, **values}, 2)
    assert [plan.settings["advertised.listeners"] for plan in plans] == [
        "PLAINTEXT://queue.example:19092",
        "PLAINTEXT://queue.example:19093",
    ]
    assert [plan.settings["penstock.metrics.listen"] for plan in plans] == ["127.0.0.1:9404", "127.0.0.1:9405"]


def test_listeners_of_two_brokers_on_one_port_are_refused_with_the_way_out() -> None:
    message = refusal(
        {"listeners": "A://127.0.0.1:9092,B://:9093", "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"}
    )
    assert "broker 0" in message
    assert "broker 1" in message
    assert "at least 3 apart" in message


def test_metrics_on_the_port_of_another_broker_are_refused() -> None:
    assert "HTTP://127.0.0.1:9093" in refusal({"penstock.metrics.listen": "127.0.0.1:9093"})


def test_ports_end_where_ports_end() -> None:
    assert "65536" in refusal({"listeners": "127.0.0.1:65534"})


@pytest.mark.parametrize("name", ["node.id", "broker.id"])
def test_a_number_of_the_operators_own_is_refused(name: str) -> None:
    assert "leave this out" in refusal({name: "4"})
    assert len(plan_brokers({**DATA, name: "0"}, 2)) == 2


def test_a_setting_that_is_wrong_is_refused_before_any_broker_is_started() -> None:
    assert "num.partitions" in refusal({"num.partitions": "-1"})


def test_a_command_line_has_what_is_the_brokers_own_and_what_the_operator_gave() -> None:
    plan = plan_brokers({**DATA, "penstock.metrics.listen": "127.0.0.1:9404"}, 2)[1]
    command = command_line(
        plan,
        ["penstock"],
        socket="/data/socket",
        overrides=[
            ("penstock.metrics.listen", "penstock.metrics.listen=127.0.0.1:9404"),
            ("ssl.key.password", "ssl.key.password@file=/run/secret"),
        ],
        rest=["--insecure"],
    )
    assert command == [
        *("penstock", "serve", "--node-id", "1", "--data-dir", "/data/1", "--listen", "PLAINTEXT://127.0.0.1:9093"),
        *("-X", "penstock.metrics.listen=127.0.0.1:9405"),
        *("-X", "penstock.metadata.socket=/data/socket"),
        *("-X", "ssl.key.password@file=/run/secret", "--insecure"),
    ]


@pytest.mark.parametrize("name", ["zookeeper.connect", "penstock.metadata.socket"])
def test_metadata_that_another_keeps_is_refused(name: str) -> None:
    assert "leave this out" in refusal({name: "localhost:2181"})


def test_replicas_that_share_a_disk_are_warned_of() -> None:
    [warning] = one_disk_warnings(plan_brokers({**DATA, "default.replication.factor": "2"}, 2)[0].config)
    assert "default.replication.factor=2" in warning
    assert "one machine is one disk" in warning
    one = {"default.replication.factor": "1", "offsets.topic.replication.factor": "1"}
    for values in ({}, one):
        assert one_disk_warnings(plan_brokers({**DATA, **values}, 2)[0].config) == []
