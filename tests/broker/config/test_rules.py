"""The tables as the controller asks for them."""

from penstock.broker.config.rules import TableRules
from penstock.broker.config.typed import BrokerConfig
from penstock.machines.config_changes import ConfigRules

RULES: ConfigRules = TableRules(BrokerConfig.parse({"log.cleanup.policy": "compact"}))


def test_each_resource_has_its_own_names() -> None:
    assert RULES.problem("topic", {"retention.ms": "5"}) is None
    assert RULES.problem("broker", {"log.retention.ms": "5"}) is None
    assert RULES.problem("cluster", {"log.retention.ms": "5"}) is None
    assert RULES.problem("topic", {"log.retention.ms": "5"}) is not None
    assert RULES.problem("broker", {"retention.ms": "5"}) is not None


def test_what_one_broker_may_have_not_all_may_be_given() -> None:
    assert RULES.problem("broker", {"ssl.protocol": "TLSv1.3"}) is None
    assert (
        RULES.problem("cluster", {"ssl.protocol": "TLSv1.3"})
        == "ssl.protocol: differs from broker to broker; set it for one broker"
    )
    assert RULES.problem("broker", {"num.partitions": "5"}) is not None


def test_lists_are_told_with_their_default() -> None:
    assert RULES.default_list("topic", "cleanup.policy") == "compact"
    assert RULES.default_list("broker", "log.cleanup.policy") == "delete"
    assert RULES.default_list("topic", "leader.replication.throttled.replicas") == ""
    assert RULES.default_list("cluster", "log.dirs") == ""


def test_what_is_no_list_or_not_there_has_none() -> None:
    assert RULES.default_list("topic", "retention.ms") is None
    assert RULES.default_list("topic", "no.such.config") is None
