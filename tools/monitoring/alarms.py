"""The table of alarms: when each fires, what is wrong then, what that means and what to do. Where `penstock cluster
health` finds the same, they share their sentences."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from penstock.cli.cluster import disks, health

JOB: Final = 'job=~"penstock.*"'
"""Several clusters are told apart by the jobs that scrape them."""


class Urgency(StrEnum):
    """As in `cluster health`. Critical: clients wait or are refused, or records are damaged. Warning: all is served,
    and the next failure may change that."""

    CRITICAL = "critical"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    name: str
    expr: str
    lasting: str
    """For how long it has to be so; 0m fires at once."""
    urgency: Urgency
    summary: str
    means: str
    action: str


@dataclass(frozen=True, slots=True)
class Recording:
    """A series that Prometheus keeps, as alarms look at its past."""

    name: str
    expr: str


LAG: Final = "job_group_topic:penstock_group_lag_messages:sum"
COMMITTED: Final = "job_group_topic:penstock_group_committed_offset:sum"

RECORDINGS: Final = (
    # A group's coordinator knows what it has committed, and leads some of the partitions at most.
    Recording(
        LAG,
        "sum by (job, group, topic) (\n"
        "  clamp_min(\n"
        "    max by (job, topic, partition) (penstock_partition_high_watermark)\n"
        "    - on (job, topic, partition) group_right ()\n"
        "    max by (job, group, topic, partition) (penstock_group_committed_offset),\n"
        "    0\n"
        "  )\n"
        ")",
    ),
    Recording(
        COMMITTED,
        "sum by (job, group, topic) (max by (job, group, topic, partition) (penstock_group_committed_offset))",
    ),
)

# The replies that say that a broker did not do what it should have. Others are part of every day, such as those to a
# client that asks a former leader.
FAULTS: Final = (
    "UNKNOWN_SERVER_ERROR|KAFKA_STORAGE_ERROR|CORRUPT_MESSAGE|NOT_ENOUGH_REPLICAS|NOT_ENOUGH_REPLICAS_AFTER_APPEND"
    "|REQUEST_TIMED_OUT|COORDINATOR_NOT_AVAILABLE"
)

ALARMS: Final = (
    Alarm(
        name="PenstockNoBroker",
        expr=f"sum by (job) (up{{{JOB}}}) == 0\nor\nabsent(up{{{JOB}}})",
        lasting="1m",
        urgency=Urgency.CRITICAL,
        summary="no broker answers Prometheus{{ with $labels.job }} in job {{ . }}{{ end }}",
        means="No broker serves, and clients wait; or Prometheus does not reach the brokers, and no other alarm can "
        "fire.",
        action="See whether the brokers run, whether penstock.metrics.listen is set, and whether a job whose name "
        "begins with penstock scrapes them.",
    ),
    Alarm(
        name="PenstockBrokerDown",
        expr=f"up{{{JOB}}} == 0",
        lasting="2m",
        urgency=Urgency.WARNING,
        summary="broker {{ $labels.instance }} is away, or does not answer Prometheus",
        means="Partitions that had a replica there are protected less now, or wait.",
        action=health.AWAY_ADVICE,
    ),
    Alarm(
        name="PenstockNoController",
        expr="sum by (job) (penstock_controller) == 0",
        lasting="1m",
        urgency=Urgency.CRITICAL,
        summary="no broker of {{ $labels.job }} is the controller",
        means=health.NO_CONTROLLER_MEANS,
        action=health.NO_CONTROLLER_ADVICE,
    ),
    Alarm(
        name="PenstockOutOfContact",
        expr='penstock_metadata_contact{contact="good"} == 0',
        lasting="1m",
        urgency=Urgency.WARNING,
        summary="broker {{ $labels.instance }} is out of contact with the metadata store",
        means="It serves what it leads, and takes on nothing new. After a whole session it takes acks=all only.",
        action="See whether the metadata store runs, and whether this machine reaches it; the broker's log names the "
        "store. Once it is reached, the broker registers again by itself.",
    ),
    Alarm(
        name="PenstockFenced",
        expr="penstock_fenced == 1",
        lasting="1m",
        urgency=Urgency.CRITICAL,
        summary="broker {{ $labels.instance }} was out of contact with the metadata store for a whole session",
        means="Others may take it for dead and lead its partitions. Records are taken with acks=all only; acks=1 and "
        "acks=0 are refused.",
        action="See whether the metadata store runs, and whether this machine reaches it; the broker's log names the "
        "store. Once it is reached, the broker registers again by itself.",
    ),
    Alarm(
        name="PenstockPartitionsWithoutLeader",
        expr="max by (job) (penstock_partitions_without_leader) > 0",
        lasting="1m",
        urgency=Urgency.CRITICAL,
        summary="{{ $value }} partition(s) of {{ $labels.job }} have no leader",
        means="Producers and consumers wait, until a broker leads that has all acknowledged records.",
        action="penstock cluster health names the partitions, and the brokers to start.",
    ),
    Alarm(
        name="PenstockBelowMinIsr",
        expr="sum by (job) (penstock_partitions_below_min_isr) > 0",
        lasting="1m",
        urgency=Urgency.CRITICAL,
        summary="{{ $value }} partition(s) of {{ $labels.job }} have too few in-sync replicas for acks=all",
        means=f"{health.REFUSED_MEANS}. What was acknowledged can be read.",
        action="penstock cluster health names the partitions, and the brokers to start or to wait for.",
    ),
    Alarm(
        name="PenstockUnderReplicated",
        expr="sum by (job) (penstock_under_replicated_partitions) > 0",
        lasting="15m",
        urgency=Urgency.WARNING,
        summary="{{ $value }} partition(s) of {{ $labels.job }} have had a replica that is not in sync for long",
        means=health.BEHIND_MEANS,
        action=f"penstock cluster health names the broker. If it is away: start it. {health.BEHIND_ADVICE}",
    ),
    Alarm(
        name="PenstockUncleanElection",
        expr="increase(penstock_unclean_elections_total[1h]) > 0",
        lasting="0m",
        urgency=Urgency.WARNING,
        summary="a leader was elected on command that may lack acknowledged records",
        means="What the new leader lacked is lost. Groups that had read it may meet other records at those offsets.",
        action="If no operator of yours did it (penstock topic elect --unclean), find out who may; the log of the "
        "controller, broker {{ $labels.instance }}, names the partitions. What producers still have can be sent "
        "again.",
    ),
    Alarm(
        name="PenstockLogsOffline",
        expr="penstock_partitions_offline > 0",
        lasting="1m",
        urgency=Urgency.CRITICAL,
        summary="broker {{ $labels.instance }} does not serve {{ $value }} log(s) that it should have",
        means="Producers and consumers of what it leads are refused (KAFKA_STORAGE_ERROR), and try again; its other "
        "replicas protect nothing.",
        action=disks.OFFLINE_ADVICE,
    ),
    Alarm(
        name="PenstockDiskFull",
        expr="penstock_disk_full == 1",
        lasting="0m",
        urgency=Urgency.CRITICAL,
        summary="the disk of broker {{ $labels.instance }} is full",
        means=disks.FULL_MEANS,
        action=disks.MAKE_ROOM,
    ),
    Alarm(
        name="PenstockDiskNearlyFull",
        expr="penstock_disk_free_bytes\n"
        f"  < penstock_disk_reserve_bytes + {disks.NEARLY_FULL} * penstock_disk_size_bytes\n"
        "unless penstock_disk_full == 1",
        lasting="5m",
        urgency=Urgency.WARNING,
        summary="the disk of broker {{ $labels.instance }} is nearly full: {{ $value | humanize1024 }}B are free",
        means=disks.NEARLY_FULL_MEANS,
        action=disks.MAKE_ROOM,
    ),
    Alarm(
        name="PenstockDiskFillsUp",
        expr="predict_linear(penstock_disk_free_bytes[6h], 24 * 3600) < penstock_disk_reserve_bytes\n"
        # Of the first minutes nothing follows for a day.
        "and penstock_disk_free_bytes offset 1h\n"
        "unless penstock_disk_full == 1",
        lasting="1h",
        urgency=Urgency.WARNING,
        summary="the disk of broker {{ $labels.instance }} will be full within a day if it goes on like this",
        means=disks.NEARLY_FULL_MEANS,
        action=disks.MAKE_ROOM,
    ),
    Alarm(
        name="PenstockDamage",
        expr="increase(penstock_scrub_corrupt_batches_total[1d]) > 0",
        lasting="0m",
        urgency=Urgency.CRITICAL,
        summary="broker {{ $labels.instance }} has found damaged batches on its disk",
        means="Bits have changed. A damaged batch is never sent: consumers that come to it get KAFKA_STORAGE_ERROR.",
        action="The broker's log names partition, file, offset and position. If another broker leads with a whole "
        "copy, start this one with an empty folder and its number, and it copies everything. Otherwise restore "
        "the partition from a backup, or read around the damage. See whether the disk fails (dmesg).",
    ),
    Alarm(
        name="PenstockCompactionFails",
        expr="increase(penstock_cleaner_failures_total[1h]) > 0",
        lasting="0m",
        urgency=Urgency.WARNING,
        summary="compaction fails on broker {{ $labels.instance }}",
        means="All is served. The logs it fails on grow, and keep old values of their keys.",
        action="The broker's log says which log, and why.",
    ),
    Alarm(
        name="PenstockRequestErrors",
        expr=f'sum by (job, instance, api, error) (rate(penstock_request_errors_total{{error=~"{FAULTS}"}}[5m])) > 0.1',
        lasting="10m",
        urgency=Urgency.WARNING,
        summary="broker {{ $labels.instance }} answers {{ $labels.api }} with {{ $labels.error }}, {{ $value | "
        "humanize }} times a second",
        means="Clients are refused or served late, and try again.",
        action="NOT_ENOUGH_REPLICAS and KAFKA_STORAGE_ERROR: see penstock cluster health. Otherwise the broker's log "
        "says more; UNKNOWN_SERVER_ERROR is a fault of Penstock's, to be reported with its log.",
    ),
    Alarm(
        name="PenstockGroupFallsBehind",
        expr=f"min_over_time({LAG}[30m]) > 300 * clamp_min(deriv({COMMITTED}[30m]), 0)\nand\nderiv({LAG}[30m]) > 0",
        lasting="30m",
        urgency=Urgency.WARNING,
        summary="group {{ $labels.group }} falls behind in {{ $labels.topic }}: it lacks {{ $value | humanize }} "
        "messages",
        means="The lag grows, and takes more than five minutes of the group's work. What retention deletes before the "
        "group comes to it is never processed.",
        action="penstock group lag shows the partitions and members. If members are gone, start them; if they are too "
        "slow, add some, up to the number of partitions. A group that is no longer used: penstock group delete.",
    ),
    Alarm(
        name="PenstockLoopStalls",
        expr="penstock_event_loop_lag_recent_max_seconds > 1",
        lasting="10m",
        urgency=Urgency.WARNING,
        summary="broker {{ $labels.instance }} stalls again and again, for {{ $value | humanize }} s at most",
        means="All clients of this broker wait meanwhile; followers and sessions may time out.",
        action="See whether the machine lacks processor time or memory, and whether "
        "penstock_gc_pause_recent_max_seconds is as long. With too much work for one broker, add brokers.",
    ),
    Alarm(
        name="PenstockConnectionsRefused",
        expr='increase(penstock_connections_closed_total{reason="limit"}[5m]) > 0',
        lasting="5m",
        urgency=Urgency.WARNING,
        summary="broker {{ $labels.instance }} refuses connections",
        means="There are more than max.connections or max.connections.per.ip allow; clients that are refused try "
        "again.",
        action="Find the clients that open too many: the broker's log has their addresses. Or raise the limit.",
    ),
    Alarm(
        name="PenstockConnectionsNearLimit",
        expr="penstock_connections > 0.8 * penstock_max_connections\n"
        "or\npenstock_process_open_fds > 0.8 * penstock_process_max_fds",
        lasting="10m",
        urgency=Urgency.WARNING,
        summary="broker {{ $labels.instance }} has used four fifths of its connections, or of its file descriptors",
        means="All is served. At the limit new connections are refused, and without descriptors no file is opened "
        "either.",
        action="Raise max.connections, or the limit on descriptors (LimitNOFILE of the systemd unit), or find the "
        "clients that open too many.",
    ),
)
