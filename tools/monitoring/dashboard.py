"""Writes the dashboard as Grafana imports it: rows of panels, each with its queries; what a panel means is what the
catalogue of metrics says."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from penstock.broker.metrics.catalogue import BROKER_FAMILIES, GROUP_FAMILIES, PARTITION_FAMILIES, TOPIC_FAMILIES
from penstock.broker.metrics.exposition import Head

HEADS: Final[Mapping[str, Head]] = {
    head.name: head
    for head in (
        *(item.head for items in BROKER_FAMILIES.values() for item in items),
        *(item.head for item in (*TOPIC_FAMILIES, *PARTITION_FAMILIES)),
        *(item.head for item in GROUP_FAMILIES),
    )
}

SCHEMA_VERSION: Final = 39
COLUMNS: Final = 24
SELECTED: Final = 'job=~"$job", instance=~"$instance"'
# Of what one broker knows of a group or partition that another leads, all brokers are looked at.
OF_CLUSTER: Final = 'job=~"$job"'

Unit = Literal["short", "bytes", "Bps", "reqps", "s", "percentunit", "ops", "none"]


@dataclass(frozen=True, slots=True)
class Query:
    """An expression in which SELECTED stands for the chosen brokers, and what its lines are called."""

    expr: str
    legend: str = "{{instance}}"


@dataclass(frozen=True, slots=True)
class Panel:
    """A number is green while it is 0, as it should be; a graph is a line for each series."""

    title: str
    queries: tuple[Query, ...]
    unit: Unit = "short"
    width: int = 8
    is_number: bool = False

    @property
    def height(self) -> int:
        return 4 if self.is_number else 8


def _number(title: str, expr: str) -> Panel:
    return Panel(title, (Query(expr, ""),), width=4, is_number=True)


def _graph(title: str, *queries: Query, unit: Unit = "short", width: int = 8) -> Panel:
    return Panel(title, queries, unit, width)


def _rate(metric: str, by: str = "instance", more: str = "", name: str = "") -> Query:
    """How fast a counter grows, of each value of a label."""
    matchers = f"{SELECTED}, {more}" if more else SELECTED
    labels = [label.strip() for label in by.split(",")]
    legend = name or " ".join(f"{{{{{label}}}}}" for label in labels)
    return Query(f"sum by ({by}) (rate({metric}{{{matchers}}}[$__rate_interval]))", legend)


def _value(metric: str, legend: str = "{{instance}}") -> Query:
    return Query(f"{metric}{{{SELECTED}}}", legend)


def _quantile(quantile: float, metric: str, by: str = "", more: str = "", legend: str = "") -> Query:
    labels = f"le, {by}" if by else "le"
    matchers = f"{SELECTED}, {more}" if more else SELECTED
    expr = f"histogram_quantile({quantile}, sum by ({labels}) (rate({metric}_bucket{{{matchers}}}[$__rate_interval])))"
    return Query(expr, legend or f"p{quantile * 100:g} {{{{{by}}}}}")


def _lag() -> str:
    return (
        f"sum by (group, topic) (clamp_min(max by (job, topic, partition) "
        f"(penstock_partition_high_watermark{{{OF_CLUSTER}}}) - on (job, topic, partition) group_right () "
        f"max by (job, group, topic, partition) (penstock_group_committed_offset{{{OF_CLUSTER}}}), 0))"
    )


ROWS: Final[Mapping[str, tuple[Panel, ...]]] = {
    "Health": (
        _number("Clusters without controller", f"sum(sum by (job) (penstock_controller{{{OF_CLUSTER}}}) == bool 0)"),
        _number("Partitions without leader", f"max(penstock_partitions_without_leader{{{OF_CLUSTER}}})"),
        _number("Below min ISR", f"sum(penstock_partitions_below_min_isr{{{SELECTED}}})"),
        _number("Under-replicated", f"sum(penstock_under_replicated_partitions{{{SELECTED}}})"),
        _number("Logs offline", f"sum(penstock_partitions_offline{{{SELECTED}}})"),
        _number("Disks full", f"sum(penstock_disk_full{{{SELECTED}}})"),
        _graph("Brokers alive, as each knows it", _value("penstock_brokers_alive")),
        _graph(
            "Contact with the metadata store",
            _value("penstock_metadata_contact", "{{instance}} {{contact}}"),
            _value("penstock_fenced", "{{instance}} fenced"),
        ),
        _graph(
            "Faults found",
            Query(f"increase(penstock_scrub_corrupt_batches_total{{{SELECTED}}}[1h])", "{{instance}} damaged batches"),
            Query(f"increase(penstock_flush_failures_total{{{SELECTED}}}[1h])", "{{instance}} failed flushes"),
            Query(f"increase(penstock_cleaner_failures_total{{{SELECTED}}}[1h])", "{{instance}} failed compactions"),
            Query(f"increase(penstock_unclean_elections_total{{{SELECTED}}}[1h])", "{{instance}} unclean elections"),
        ),
    ),
    "Traffic": (
        _graph("Records appended", _rate("penstock_topic_appended_records_total", "topic"), unit="ops"),
        _graph(
            "Bytes appended, with the copies of followers",
            _rate("penstock_topic_appended_bytes_total", "topic"),
            unit="Bps",
        ),
        _graph("Bytes fetched", _rate("penstock_topic_fetched_bytes_total", "topic"), unit="Bps"),
        _graph("Requests by API", _rate("penstock_requests_total", "api"), unit="reqps"),
        _graph("Bytes of requests", _rate("penstock_request_bytes_total"), unit="Bps"),
        _graph("Bytes of replies", _rate("penstock_response_bytes_total"), unit="Bps"),
    ),
    "Latency": (
        _graph(
            "Produce",
            *(
                _quantile(each, "penstock_request_duration_seconds", "instance", 'api="Produce"')
                for each in (0.5, 0.99, 0.999)
            ),
            unit="s",
        ),
        _graph(
            "Fetch, without waiting for records",
            *(
                _quantile(each, "penstock_request_duration_seconds", "instance", 'api="Fetch"')
                for each in (0.5, 0.99, 0.999)
            ),
            unit="s",
        ),
        _graph("All APIs, 99%", _quantile(0.99, "penstock_request_duration_seconds", "api"), unit="s"),
        _graph(
            "Flushes",
            *(_quantile(each, "penstock_flush_duration_seconds", "instance") for each in (0.5, 0.99)),
            unit="s",
        ),
        _graph(
            "Stalls of the event loop, longest of late",
            _value("penstock_event_loop_lag_recent_max_seconds"),
            _value("penstock_gc_pause_recent_max_seconds", "{{instance}} garbage collection"),
            unit="s",
        ),
        _graph("Slow requests", _rate("penstock_slow_requests_total"), unit="reqps"),
    ),
    "Groups": (
        _graph("Messages that groups lack", Query(_lag(), "{{group}} {{topic}}"), width=12),
        _graph(
            "Age of the oldest message that a group lacks, where it is known",
            Query(f"max by (group, topic) (penstock_group_lag_seconds{{{OF_CLUSTER}}})", "{{group}} {{topic}}"),
            unit="s",
            width=12,
        ),
    ),
    "Replication": (
        _graph(
            "Partitions",
            _value("penstock_partitions", "{{instance}} led"),
            _value("penstock_under_replicated_partitions", "{{instance}} under-replicated"),
            _value("penstock_partitions_below_min_isr", "{{instance}} below min ISR"),
            _value("penstock_reassigning_partitions", "{{instance}} with replicas under way"),
        ),
        _graph(
            "What brokers lack, in bytes",
            Query(f"sum by (job, broker) (penstock_follower_lag_bytes{{{OF_CLUSTER}}})", "{{job}} {{broker}}"),
            unit="bytes",
        ),
        _graph(
            "What brokers lack, in time",
            Query(f"max by (job, broker) (penstock_follower_lag_seconds{{{OF_CLUSTER}}})", "{{job}} {{broker}}"),
            unit="s",
        ),
        _graph("In-sync replicas", _value("penstock_in_sync_replicas"), width=12),
        _graph(
            "Controller and its epoch",
            _value("penstock_controller"),
            _value("penstock_controller_epoch", "{{instance}} epoch"),
            width=12,
        ),
    ),
    "Disk": (
        _graph(
            "Free",
            _value("penstock_disk_free_bytes"),
            _value("penstock_disk_reserve_bytes", "{{instance}} reserve"),
            unit="bytes",
        ),
        _graph(
            "Used share",
            Query(f"1 - penstock_disk_free_bytes{{{SELECTED}}} / penstock_disk_size_bytes{{{SELECTED}}}"),
            unit="percentunit",
        ),
        _graph(
            "Largest topics",
            Query(f"topk(10, sum by (topic) (penstock_partition_size_bytes{{{SELECTED}}}))", "{{topic}}"),
            unit="bytes",
        ),
        _graph("Segments deleted by retention", _rate("penstock_retention_deleted_segments_total"), unit="ops"),
        _graph(
            "Compaction",
            _rate("penstock_cleaner_read_bytes_total", name="{{instance}} read"),
            _rate("penstock_cleaner_written_bytes_total", name="{{instance}} written"),
            unit="Bps",
        ),
        _graph("Scrubbed", _rate("penstock_scrubbed_bytes_total"), unit="Bps"),
    ),
    "Clients and errors": (
        _graph("Connections", _value("penstock_connections")),
        _graph("Connections closed, by reason", _rate("penstock_connections_closed_total", "reason"), unit="ops"),
        _graph("Errors in replies", _rate("penstock_request_errors_total", "api, error"), unit="ops"),
        _graph("Processor time", _rate("penstock_process_cpu_seconds_total"), unit="percentunit"),
        _graph("Memory", _value("penstock_process_resident_memory_bytes"), unit="bytes"),
        _graph(
            "File descriptors in use",
            Query(f"penstock_process_open_fds{{{SELECTED}}} / penstock_process_max_fds{{{SELECTED}}}"),
            unit="percentunit",
        ),
    ),
}

DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


def render_dashboard() -> str:
    return json.dumps(dashboard(), indent=2, ensure_ascii=False) + "\n"


def dashboard() -> dict[str, Any]:
    return {
        "title": "Penstock",
        "uid": "penstock",
        "description": "Brokers of Penstock: health, traffic, latency, groups, replication, disks, clients.",
        "tags": ["penstock"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "time": {"from": "now-3h", "to": "now"},
        "refresh": "30s",
        "timezone": "browser",
        "annotations": {"list": []},
        "links": [],
        "templating": {
            "list": [
                {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
                _variable("job", "Cluster", "label_values(penstock_build_info, job)"),
                _variable("instance", "Broker", 'label_values(penstock_build_info{job=~"$job"}, instance)'),
            ]
        },
        "panels": list(_panels()),
    }


def _variable(name: str, label: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def _panels() -> Iterator[dict[str, Any]]:
    """From left to right and from top to bottom."""
    number, y = 0, 0
    for title, panels in ROWS.items():
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "panels": [],
            "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1},
        }
        x, y, height = 0, y + 1, 0
        for panel in panels:
            if x + panel.width > COLUMNS:
                x, y, height = 0, y + height, 0
            number += 1
            yield _panel(panel, number, {"x": x, "y": y, "w": panel.width, "h": panel.height})
            x, height = x + panel.width, max(height, panel.height)
        y += height


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": "stat" if panel.is_number else "timeseries",
        "title": panel.title,
        "description": describe(panel),
        "datasource": DATASOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _options(panel),
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": DATASOURCE,
                "editorMode": "code",
                "expr": query.expr,
                "legendFormat": query.legend or "__auto",
                "range": True,
                "instant": False,
            }
            for index, query in enumerate(panel.queries)
        ],
    }


def describe(panel: Panel) -> str:
    """What the catalogue says of the metrics of a panel."""
    named = dict.fromkeys(name for query in panel.queries for name in metrics(query.expr))
    return "\n\n".join(f"`{name}`: {HEADS[name].help}" for name in named)


def metrics(expr: str) -> list[str]:
    """The families that an expression reads."""
    found = re.findall(r"\bpenstock_[a-z_]+", re.sub(r"job_group_topic:\w+:sum", "", expr))
    return [name if name in HEADS else name.removesuffix("_bucket") for name in found]


def _defaults(panel: Panel) -> dict[str, Any]:
    if not panel.is_number:
        return {"unit": panel.unit, "min": 0, "custom": {"fillOpacity": 5, "showPoints": "never"}}
    # Grafana colours a number by the last step that it has reached.
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}, {"color": "red", "value": 1}]
    return {"unit": panel.unit, "thresholds": {"mode": "absolute", "steps": steps}}


def _options(panel: Panel) -> dict[str, Any]:
    if panel.is_number:
        calculation = {"calcs": ["lastNotNull"], "fields": "", "values": False}
        return {"colorMode": "background", "graphMode": "area", "reduceOptions": calculation}
    return {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
