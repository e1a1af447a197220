"""The alarms fire when they should and only then, by promtool; what they read, brokers show."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.broker.harness import batch, in_loop, running
from tests.broker.members import commit, with_groups
from tests.broker.metrics.scraping import ON, scrape
from tests.tools.rules import misused, promtool
from tools import monitoring
from tools.monitoring.alarms import ALARMS, FAULTS, RECORDINGS
from tools.monitoring.dashboard import metrics

RULES = monitoring.FOLDER / "penstock.rules.yml"
OWN = 'job="penstock", instance="a"'
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Case:
    """Series by their names, with values minute by minute, and how many alarms of a name they have fire in the end.
    `1x10` is 1 eleven times, `0+5x10` grows by 5 ten times."""

    alarm: str
    series: Mapping[str, str]
    fires: int
    at: str = "15m"


def alone(metric: str, values: str, labels: str = "") -> dict[str, str]:
    """A series of one broker."""
    return {f"{metric}{{{', '.join(filter(None, (OWN, labels)))}}}": values}


def disk(free: str, full: int = 0) -> dict[str, str]:
    return {
        **alone("penstock_disk_free_bytes", free),
        **alone("penstock_disk_size_bytes", f"{100 * GIB}x140"),
        **alone("penstock_disk_reserve_bytes", f"{GIB}x140"),
        **alone("penstock_disk_full", f"{full}x140"),
    }


def connections(count: int, files: int) -> dict[str, str]:
    return {
        **alone("penstock_connections", f"{count}x60"),
        **alone("penstock_max_connections", "100x60"),
        **alone("penstock_process_open_fds", f"{files}x60"),
        **alone("penstock_process_max_fds", "1000x60"),
    }


def group(written: str, committed: str) -> dict[str, str]:
    """A group whose coordinator is another broker than the one that leads the partition, and than its follower."""
    where = 'topic="orders", partition="0"'
    return {
        f'penstock_partition_high_watermark{{job="penstock", instance="a", {where}}}': written,
        f'penstock_partition_high_watermark{{job="penstock", instance="b", {where}}}': "0x100",
        f'penstock_group_committed_offset{{job="penstock", instance="c", group="g", {where}}}': committed,
    }


def pair(metric: str, one: str, other: str, *, second: str = "penstock") -> dict[str, str]:
    """A series of two brokers, which may be of different clusters."""
    return {
        f'{metric}{{job="penstock", instance="a"}}': one,
        f'{metric}{{job="{second}", instance="b"}}': other,
    }


CASES = [
    Case("PenstockNoBroker", {}, 1),
    Case("PenstockNoBroker", pair("up", "0x20", "0x20"), 1),
    Case("PenstockNoBroker", pair("up", "0x20", "1x20", second="penstock-two"), 1),
    Case("PenstockNoBroker", pair("up", "0x20", "1x20"), 0),
    Case("PenstockBrokerDown", pair("up", "1x5 0x20", "1x20"), 1),
    Case("PenstockBrokerDown", {'up{job="other", instance="a"}': "0x20", **alone("up", "1 0 1x20")}, 0),
    Case("PenstockNoController", pair("penstock_controller", "1x2 0x20", "0x30"), 1),
    Case("PenstockNoController", pair("penstock_controller", "1x2 0x20", "0x30", second="penstock-two"), 2),
    Case("PenstockNoController", pair("penstock_controller", "1x5 0x20", "0x5 1x20"), 0),
    Case("PenstockOutOfContact", alone("penstock_metadata_contact", "0x20", 'contact="good"'), 1),
    Case("PenstockOutOfContact", alone("penstock_metadata_contact", "1x13 0 1x9", 'contact="good"'), 0),
    Case("PenstockOutOfContact", alone("penstock_metadata_contact", "0x20", 'contact="lost"'), 0),
    Case("PenstockFenced", alone("penstock_fenced", "1x20"), 1),
    Case("PenstockFenced", alone("penstock_fenced", "0x20"), 0),
    Case("PenstockPartitionsWithoutLeader", pair("penstock_partitions_without_leader", "2x20", "2x20"), 1),
    Case("PenstockPartitionsWithoutLeader", alone("penstock_partitions_without_leader", "0x14 2 0x9"), 0),
    Case("PenstockBelowMinIsr", pair("penstock_partitions_below_min_isr", "0x20", "1x20"), 1),
    Case("PenstockBelowMinIsr", alone("penstock_partitions_below_min_isr", "0x20"), 0),
    Case("PenstockUnderReplicated", alone("penstock_under_replicated_partitions", "3x20"), 1),
    Case("PenstockUnderReplicated", alone("penstock_under_replicated_partitions", "3x10 0 3x9"), 0, at="20m"),
    Case("PenstockUncleanElection", alone("penstock_unclean_elections_total", "0x10 1x10"), 1),
    Case("PenstockUncleanElection", alone("penstock_unclean_elections_total", "1x20"), 0),
    Case("PenstockLogsOffline", alone("penstock_partitions_offline", "1x20"), 1),
    Case("PenstockLogsOffline", alone("penstock_partitions_offline", "0x20"), 0),
    Case("PenstockDiskFull", disk(f"{GIB - 1}x20", full=1), 1),
    Case("PenstockDiskFull", disk(f"{GIB + 1}x20"), 0),
    Case("PenstockDiskNearlyFull", disk(f"{5 * GIB}x20"), 1),
    Case("PenstockDiskNearlyFull", disk(f"{5 * GIB}x20", full=1), 0),
    Case("PenstockDiskNearlyFull", disk(f"{7 * GIB}x20"), 0),
    # It loses 3 GiB in an hour, or 1.2.
    Case("PenstockDiskFillsUp", disk(f"{60 * GIB}-{3 * GIB // 60}x140"), 1, at="130m"),
    Case("PenstockDiskFillsUp", disk(f"{60 * GIB}-{GIB // 50}x140"), 0, at="130m"),
    Case("PenstockDiskFillsUp", disk(f"{60 * GIB}-{3 * GIB // 60}x140"), 0, at="100m"),
    Case("PenstockDamage", alone("penstock_scrub_corrupt_batches_total", "0x5 1x20"), 1),
    Case("PenstockDamage", alone("penstock_scrub_corrupt_batches_total", "1x20"), 0),
    Case("PenstockCompactionFails", alone("penstock_cleaner_failures_total", "0x5 1x20"), 1),
    Case("PenstockCompactionFails", alone("penstock_cleaner_failures_total", "3x20"), 0),
    Case(
        "PenstockRequestErrors",
        alone("penstock_request_errors_total", "0+60x30", 'api="Produce", error="NOT_ENOUGH_REPLICAS"'),
        1,
        at="20m",
    ),
    Case(
        "PenstockRequestErrors",
        alone("penstock_request_errors_total", "0+60x30", 'api="Produce", error="NOT_LEADER_OR_FOLLOWER"'),
        0,
        at="20m",
    ),
    Case(
        "PenstockRequestErrors",
        alone("penstock_request_errors_total", "0x15 9x30", 'api="Fetch", error="KAFKA_STORAGE_ERROR"'),
        0,
        at="20m",
    ),
    Case("PenstockGroupFallsBehind", group("0+600x100", "0+300x100"), 1, at="80m"),
    Case("PenstockGroupFallsBehind", group("0+600x100", "0x100"), 1, at="80m"),
    # One keeps pace, one catches up, and one is behind with nothing new coming.
    Case("PenstockGroupFallsBehind", group("1000+600x100", "0+600x100"), 0, at="80m"),
    Case("PenstockGroupFallsBehind", group("100000+600x100", "0+900x100"), 0, at="80m"),
    Case("PenstockGroupFallsBehind", group("1000x100", "0x100"), 0, at="80m"),
    Case("PenstockLoopStalls", alone("penstock_event_loop_lag_recent_max_seconds", "2.5x20"), 1),
    Case("PenstockLoopStalls", alone("penstock_event_loop_lag_recent_max_seconds", "0.2x8 2.5x1 0.2x20"), 0),
    Case("PenstockConnectionsRefused", alone("penstock_connections_closed_total", "0+3x20", 'reason="limit"'), 1),
    Case("PenstockConnectionsRefused", alone("penstock_connections_closed_total", "0x9 1x20", 'reason="limit"'), 0),
    Case("PenstockConnectionsRefused", alone("penstock_connections_closed_total", "0+3x20", 'reason="client"'), 0),
    Case("PenstockConnectionsNearLimit", connections(81, 100), 1),
    Case("PenstockConnectionsNearLimit", connections(50, 801), 1),
    Case("PenstockConnectionsNearLimit", connections(80, 800), 0),
]


def test_promtool_finds_no_fault_in_the_rules() -> None:
    promtool("check", "rules", "--lint-fatal", str(RULES))


def test_every_alarm_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    assert {case.alarm for case in CASES if case.fires} == {alarm.name for alarm in ALARMS}
    assert {case.alarm for case in CASES if not case.fires} == {alarm.name for alarm in ALARMS}


# Hours are looked at less often, which takes a fifth of the time.
@pytest.mark.parametrize(("every", "are_long"), [("1m", False), ("5m", True)])
def test_alarms_fire_when_they_should_and_only_then(every: str, are_long: bool, tmp_path: Path) -> None:
    tests: list[Mapping[str, object]] = [
        {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{case.alarm}", alertstate="firing"}}) or vector(0)',
                    "eval_time": case.at,
                    "exp_samples": [{"labels": "{}", "value": case.fires}],
                }
            ],
        }
        for case in CASES
        if (int(case.at.removesuffix("m")) > 60) == are_long
    ]
    check(tmp_path, tests, every)


def test_texts_have_names_and_numbers_in_them(tmp_path: Path) -> None:
    shown = {
        "PenstockDiskNearlyFull": "the disk of broker a is nearly full: 5GiB are free",
        "PenstockNoBroker": "no broker answers Prometheus",
    }
    labels = {"PenstockDiskNearlyFull": {"job": "penstock", "instance": "a"}, "PenstockNoBroker": {}}
    tests: list[Mapping[str, object]] = [
        {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in disk(f"{5 * GIB}x20").items()],
            "alert_rule_test": [
                {
                    "alertname": name,
                    "eval_time": "10m",
                    "exp_alerts": [
                        {
                            "exp_labels": {"severity": str(alarm.urgency), **labels[name]},
                            "exp_annotations": {
                                "summary": shown[name],
                                "description": alarm.means,
                                "action": alarm.action,
                            },
                        }
                    ],
                }
            ],
        }
        for alarm in ALARMS
        if (name := alarm.name) in shown
    ]
    check(tmp_path, tests)


def check(folder: Path, tests: Sequence[Mapping[str, object]], every: str = "1m") -> None:
    """JSON is YAML."""
    path = folder / "tests.json"
    path.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": every, "tests": tests}))
    promtool("test", "rules", str(path))


@pytest.mark.parametrize("each", [*ALARMS, *RECORDINGS], ids=lambda each: each.name)
def test_rules_read_what_the_catalogue_has_with_its_labels(each: object) -> None:
    expr: str = each.expr  # type: ignore[attr-defined]
    assert misused(expr) == []


def test_a_name_or_label_that_does_not_exist_is_noticed() -> None:
    assert misused("sum by (topic) (penstock_controller)") == ["topic"]
    assert misused('penstock_fenced{api="Fetch"}') == ["penstock_fenced: api"]
    assert misused("penstock_wishes > 0") == ["penstock_wishes"]


def test_faults_are_error_codes() -> None:
    from penstock.protocol.error_codes import ErrorCode

    assert set(FAULTS.split("|")) <= {code.name for code in ErrorCode}


@in_loop
async def test_a_running_broker_shows_everything_that_alarms_read() -> None:
    async with running(ON) as node:
        client = await with_groups(node)
        await client.create_topic("orders")
        await commit(client, "g", {("orders", 0): 0})
        await client.produce("nowhere", batch(b"a"))
        shown = {name for name, _ in await scrape(node)}
        read = {name for each in (*ALARMS, *RECORDINGS) for name in metrics(each.expr)}
        assert len(read) > 20
        assert read <= shown


def test_every_alarm_says_what_is_wrong_what_it_means_and_what_to_do() -> None:
    assert len({alarm.name for alarm in ALARMS}) == len(ALARMS)
    for alarm in ALARMS:
        assert re.fullmatch(r"Penstock[A-Z]\w+", alarm.name)
        assert not alarm.summary.endswith(".")
        assert alarm.means.endswith(".")
        assert alarm.action.endswith(".")
