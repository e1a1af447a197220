"""Where a broker's settings come from."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from penstock.broker.config.broker_table import BROKER_CONFIGS
from penstock.broker.config.settings import default_data_directory, load_settings
from penstock.broker.config.typed import BrokerConfig
from penstock.broker.config.values import ConfigError

HOME = {"HOME": "/home/user"}


def load(
    *,
    flags: Mapping[str, str] | None = None,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    config_file: Path | None = None,
) -> tuple[BrokerConfig, list[str]]:
    return load_settings(
        flags=flags or {}, overrides=overrides, environ={**HOME, **(environ or {})}, config_file=config_file
    )


def written(folder: Path, content: str) -> Path:
    path = folder / "server.properties"
    path.write_text(content)
    return path


def test_a_broker_starts_without_being_told_anything() -> None:
    config, warnings = load()
    assert warnings == []
    assert config.node_id == 0
    assert [str(listener) for listener in config.listeners] == ["PLAINTEXT://127.0.0.1:9092"]
    assert config.log_dirs == (str(default_data_directory(HOME)),)


def test_flags_win_over_overrides_over_the_environment_over_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "node.id=1\nnum.partitions=1\nmessage.max.bytes=1\nfetch.max.bytes=2001")
    config, _ = load(
        flags={"--node-id": "4"},
        overrides=["node.id=3", "num.partitions=3"],
        environ={"PENSTOCK_NODE_ID": "2", "PENSTOCK_NUM_PARTITIONS": "2", "PENSTOCK_MESSAGE_MAX_BYTES": "2"},
        config_file=path,
    )
    assert config["node.id"] == 4
    assert config["num.partitions"] == 3
    assert config["message.max.bytes"] == 2
    assert config["fetch.max.bytes"] == 2001


def test_each_flag_is_a_setting() -> None:
    config, _ = load(flags={"--data-dir": "/data", "--listen": "localhost:0", "--node-id": "5"})
    assert config.log_dirs == ("/data",)
    assert str(config.listeners[0]) == "PLAINTEXT://localhost:0"
    assert config.node_id == 5


def test_a_setting_hides_lower_ones_of_its_other_names(tmp_path: Path) -> None:
    path = written(tmp_path, "broker.id=1\nlog.dirs=/file\nlog.retention.ms=5\nlog.roll.ms=6")
    config, warnings = load(
        flags={"--node-id": "2"},
        overrides=["log.retention.hours=3"],
        environ={"PENSTOCK_LOG_DIR": "/environment", "PENSTOCK_LOG_ROLL_HOURS": "1"},
        config_file=path,
    )
    assert config.node_id == 2
    assert config.log_dirs == ("/environment",)
    assert config.topic_defaults["retention.ms"] == 3 * 3_600_000
    assert config.topic_defaults["segment.ms"] == 3_600_000
    assert warnings == []


def test_within_one_source_milliseconds_win_over_minutes_over_hours(tmp_path: Path) -> None:
    path = written(tmp_path, "log.retention.hours=1\nlog.retention.minutes=2\nlog.retention.ms=3")
    config, warnings = load(config_file=path)
    assert config.topic_defaults["retention.ms"] == 3
    assert warnings == [
        f"{path} line 2: log.retention.minutes does not count, because log.retention.ms is set as well",
        f"{path} line 1: log.retention.hours does not count, because log.retention.ms is set as well",
    ]


def test_both_names_of_the_broker_may_be_set_if_they_agree(tmp_path: Path) -> None:
    config, warnings = load(config_file=written(tmp_path, "broker.id=1\nnode.id=1"))
    assert config.node_id == 1
    assert warnings == []


def test_every_name_can_be_told_from_its_variable() -> None:
    values = {name: key.format(key.default) for name, key in BROKER_CONFIGS.items() if key.default is not None}
    texts = {name: text for name, text in values.items() if text is not None}
    config, _ = load(environ={"PENSTOCK_" + name.upper().replace(".", "_"): text for name, text in texts.items()})
    assert config.static.items() >= texts.items()


@pytest.mark.parametrize("variable", ["PENSTOCK_FLUSH", "PENSTOCK_PENSTOCK_FLUSH"])
def test_our_own_prefix_need_not_be_said_twice(variable: str) -> None:
    config, warnings = load(environ={variable: "os"})
    assert config["penstock.flush"] == "os"
    assert warnings == []


def test_a_variable_that_is_no_setting_warns_with_the_near_name() -> None:
    _, warnings = load(
        environ={
            "PENSTOCK_LOG_SEGMENT_BYTE": "1",
            "PENSTOCK_PORT_9092_TCP": "x",
            "PENSTOCK_BOOTSTRAP": "h:1",
            "OTHER": "1",
        }
    )
    assert warnings == [
        "PENSTOCK_LOG_SEGMENT_BYTE: there is no such setting; did you mean PENSTOCK_LOG_SEGMENT_BYTES?",
        "PENSTOCK_PORT_9092_TCP: there is no such setting",
    ]


def test_what_is_set_without_effect_warns_with_the_source(tmp_path: Path) -> None:
    path = written(tmp_path, "num.io.threads=9\nlog.preallocate=true\nnum.partitions=3")
    _, warnings = load(
        overrides=["rsm.config.key=hush"], environ={"PENSTOCK_COMPRESSION_TYPE": "zstd"}, config_file=path
    )
    assert warnings == [
        "-X: rsm.config.key is accepted, but has no effect in this version",
        "PENSTOCK_COMPRESSION_TYPE: compression.type=zstd is accepted, but has no effect in this version",
        f"{path} line 1: num.io.threads is accepted, but has no effect in this version",
        f"{path} line 2: log.preallocate is accepted, but has no effect in this version",
    ]


def test_what_is_set_twice_in_one_source_counts_as_it_stands_last(tmp_path: Path) -> None:
    path = written(tmp_path, "num.partitions=2\nnum.partitions=3")
    config, warnings = load(config_file=path)
    assert config["num.partitions"] == 3
    assert warnings == [f"{path} line 2: num.partitions is set again; {path} line 1 does not count"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"flags": {"--node-id": "x"}}, "--node-id: node.id: x is not a whole number"),
        ({"flags": {"--listen": "here"}}, "--listen: listeners: 'here' is no address"),
        (
            {"overrides": ["log.segement.bytes=1"]},
            "-X: log.segement.bytes: there is no such broker config; did you mean log.segment.bytes?",
        ),
        (
            {"overrides": ["retention.ms=1"]},
            "-X: retention.ms: there is no such broker config; it is a topic's name for log.retention.ms",
        ),
        ({"overrides": ["node.id"]}, "-X: node.id: is not of the form name=value"),
        ({"environ": {"PENSTOCK_NUM_PARTITIONS": "0"}}, "PENSTOCK_NUM_PARTITIONS: num.partitions: 0 is out of range"),
        ({"overrides": ["node.id=1", "broker.id=2"]}, "-X: broker.id: 2 is not 1"),
        (
            {"overrides": ["replica.lag.time.max.ms=1"]},
            "-X: replica.fetch.wait.max.ms: 500 is more than replica.lag.time.max.ms",
        ),
    ],
)
def test_an_error_names_the_source_and_the_near_name(source: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        load(**source)  # type: ignore[arg-type]


def test_an_error_in_a_file_names_the_line(tmp_path: Path) -> None:
    path = written(tmp_path, "node.id=1\n\nnum.partitions=many\n")
    with pytest.raises(ConfigError, match=re.escape(f"{path} line 3: num.partitions: many is not a whole number")):
        load(config_file=path)


def test_a_file_as_kafka_ships_it_is_accepted(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        # A broker that is its own controller
        process.roles=broker,controller
        node.id=1
        controller.quorum.bootstrap.servers=localhost:9093
        listeners=PLAINTEXT://:9092,CONTROLLER://:9093
        inter.broker.listener.name=PLAINTEXT
        advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
        controller.listener.names=CONTROLLER
        listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
        num.network.threads=3
        socket.request.max.bytes=104857600
        log.dirs=/tmp/kraft-combined-logs
        num.recovery.threads.per.data.dir=1
        offsets.topic.replication.factor=1
        log.retention.hours=168
        log.segment.bytes=1073741824
        """,
    )
    config, warnings = load(config_file=path)
    assert [str(listener) for listener in config.listeners] == ["PLAINTEXT://:9092"]
    told = config.advertised_listeners(bound_ports={}, machine="here")
    assert [str(listener) for listener in told] == ["PLAINTEXT://localhost:9092"]
    assert len(warnings) == 4


@pytest.mark.parametrize(
    ("platform", "environ", "expected"),
    [
        ("linux", {}, "/home/user/.local/share/penstock"),
        ("linux", {"XDG_DATA_HOME": "/data"}, "/data/penstock"),
        ("linux", {"XDG_DATA_HOME": "relative"}, "/home/user/.local/share/penstock"),
        ("darwin", {}, "/home/user/Library/Application Support/penstock"),
    ],
)
def test_data_lies_where_the_platform_keeps_it(
    monkeypatch: pytest.MonkeyPatch, platform: str, environ: dict[str, str], expected: str
) -> None:
    monkeypatch.setattr("penstock.broker.config.settings.sys.platform", platform)
    assert str(default_data_directory(HOME | environ)) == expected
