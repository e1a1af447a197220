"""The catalogue lists every metric that a broker shows: its name, what it means, and where it is read. The reference is
written from it."""

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock import __version__
from penstock.broker.metrics import process
from penstock.broker.metrics.exposition import Head, Sample
from penstock.broker.metrics.follower_lags import FollowerLag, follower_lags
from penstock.broker.metrics.group_lags import GroupLag
from penstock.broker.metrics.histogram import Histogram
from penstock.broker.metrics.requests import ApiMeter
from penstock.machines.cluster_records import NO_LEADER
from penstock.metadata.store import Contact
from penstock.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.network.listener import Listener
    from penstock.broker.partitions.partition import Partition
    from penstock.broker.services import Services
    from penstock.broker.upkeep.upkeep import Upkeep


@dataclass(slots=True, frozen=True)
class Sources:
    """The parts of a broker that its metrics are read from."""

    services: "Services"
    listener: "Listener"
    upkeep: "Upkeep"


@dataclass(slots=True, frozen=True)
class BrokerFamily:
    head: Head
    read: Callable[[Sources], Iterable[Sample]]


@dataclass(slots=True, frozen=True)
class PartitionFamily:
    """A number of each partition; those of topics are the sums of their partitions on this broker."""

    head: Head
    read: "Callable[[Partition], int]"


@dataclass(slots=True, frozen=True)
class GroupFamily:
    """A number of a group in a partition; None while it is unknown."""

    head: Head
    read: Callable[[GroupLag], float | None]


def _counter(name: str, help: str, read: Callable[[Sources], Iterable[Sample]], *labels: str) -> BrokerFamily:
    return BrokerFamily(Head(name, "counter", help, labels), read)


def _gauge(name: str, help: str, read: Callable[[Sources], Iterable[Sample]], *labels: str) -> BrokerFamily:
    return BrokerFamily(Head(name, "gauge", help, labels), read)


def _histogram(name: str, help: str, read: Callable[[Sources], Iterable[Sample]], *labels: str) -> BrokerFamily:
    return BrokerFamily(Head(name, "histogram", help, labels), read)


def _of_topic(name: str, help: str, read: "Callable[[Partition], int]") -> PartitionFamily:
    return PartitionFamily(Head(name, "counter", help, ("topic",)), read)


def _of_partition(name: str, help: str, read: "Callable[[Partition], int]") -> PartitionFamily:
    return PartitionFamily(Head(name, "gauge", help, ("topic", "partition")), read)


def _of_group(name: str, help: str, read: Callable[[GroupLag], float | None]) -> GroupFamily:
    return GroupFamily(Head(name, "gauge", help, ("group", "topic", "partition")), read)


def _one(value: float | Histogram | None) -> list[Sample]:
    """A family of one series, or of none if there is no value."""
    return [] if value is None else [((), value)]


def _by_api(read: Callable[[ApiMeter], int | Histogram]) -> Callable[[Sources], Iterable[Sample]]:
    """A series for each API. A histogram has many lines, so it is there only if it has counted anything."""

    def read_all(sources: Sources) -> Iterable[Sample]:
        for meter in sources.services.meters.requests.all():
            told = read(meter)
            if not isinstance(told, Histogram) or told.count:
                yield (meter.api.name,), told

    return read_all


def _errors(sources: Sources) -> Iterable[Sample]:
    for meter in sources.services.meters.requests.all():
        for code, count in list(meter.errors.items()):
            yield (meter.api.name, _error_name(code)), count


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def _offline(sources: Sources) -> int:
    failed = sum(partition.log.failure is not None for partition in sources.services.partitions.replicas())
    return len(sources.services.partitions.failed) + failed


def _under_replicated(sources: Sources) -> int:
    led = sources.services.partitions.all()
    return sum(bool({*each.leader.replicas} - each.leader.isr - {*_adding(sources, each)}) for each in led)


def _reassigning(sources: Sources) -> int:
    return sum(bool(_adding(sources, partition)) for partition in sources.services.partitions.all())


def _adding(sources: Sources, partition: "Partition") -> Iterable[int]:
    topic = sources.services.image.topics.get(partition.topic)
    return topic.partitions[partition.index].adding if topic is not None else ()


def _leaderless(sources: Sources) -> int:
    topics = sources.services.image.topics.values()
    return sum(partition.leader == NO_LEADER for topic in topics for partition in topic.partitions)


def _eligible(sources: Sources) -> int:
    topics = sources.services.image.topics.values()
    return sum(len(partition.elr) for topic in topics for partition in topic.partitions)


def _lags(read: Callable[[FollowerLag], float]) -> Callable[[Sources], Iterable[Sample]]:
    """A series for each broker that follows this one."""

    def read_all(sources: Sources) -> Iterable[Sample]:
        return [((str(broker_id),), read(lag)) for broker_id, lag in sorted(follower_lags(sources.services).items())]

    return read_all


def _collections(sources: Sources) -> Iterable[Sample]:
    return [((str(age),), count) for age, count in enumerate(sources.services.meters.gc_pauses.collections)]


def _contact(sources: Sources) -> Iterable[Sample]:
    now = sources.services.registration.contact
    return [((contact.value,), int(contact is now)) for contact in Contact]


def _build(sources: Sources) -> Iterable[Sample]:
    services = sources.services
    return [((__version__, sys.version.split()[0], str(services.node_id), services.cluster_id), 1)]


# The tables are functions because the type checker looks into those last, when it knows all about a broker.
# fmt: off
def _requests() -> tuple[BrokerFamily, ...]:
    return (
        _counter("penstock_requests_total", "Requests answered.",
            _by_api(lambda api: api.seconds.count), "api"),
        _counter("penstock_request_bytes_total", "Bytes of the bodies of requests answered.",
            _by_api(lambda api: api.bytes_in), "api"),
        _counter("penstock_response_bytes_total", "Bytes of replies.",
            _by_api(lambda api: api.bytes_out), "api"),
        _counter("penstock_request_errors_total",
            "Error codes in replies, those of each partition or other item by itself.",
            _errors, "api", "error"),
        _histogram("penstock_request_duration_seconds",
            "From a request's arrival until its reply is ready to be sent. With the wait for the disk (acks=all), "
            "without the wait for records that a fetch asks for. An API is here once it was used.",
            _by_api(lambda api: api.seconds), "api"),
        _histogram("penstock_request_wait_seconds",
            "How long requests that had to wait waited for what they asked to wait for: a fetch for records.",
            _by_api(lambda api: api.waits), "api"),
        _counter("penstock_slow_requests_total", "Requests that took longer than penstock.slow.request.ms.",
            lambda sources: _one(sources.services.meters.requests.slow.total)),
        _gauge("penstock_unanswered_request_bytes", "Bytes of requests that have no reply yet.",
            lambda sources: _one(sources.listener.budget.used_bytes)),
        _gauge("penstock_fetch_sessions", "Fetch sessions kept.",
            lambda sources: _one(len(sources.services.fetch_sessions))),
    )


def _connections() -> tuple[BrokerFamily, ...]:
    return (
        _gauge("penstock_connections", "Connections of clients that are open.",
            lambda sources: _one(len(sources.listener.connections))),
        _gauge("penstock_max_connections",
            "Connections of clients that are allowed (max.connections); one more is closed.",
            lambda sources: _one(sources.listener.max_connections)),
        _counter("penstock_connections_accepted_total", "Connections accepted.",
            lambda sources: _one(sources.listener.accepted)),
        _counter("penstock_connections_closed_total",
            "Connections closed: by the client, for idling, for stalling (a request does not end, replies are not "
            "read), over a limit on connections, or for an error, such as a request that cannot be read.",
            lambda sources: [((reason,), count) for reason, count in sources.listener.closed.items()], "reason"),
    )


def _logs() -> tuple[BrokerFamily, ...]:
    return (
        _gauge("penstock_partitions", "Partitions that this broker leads.",
            lambda sources: _one(len(sources.services.partitions))),
        _gauge("penstock_partitions_offline", "Partitions whose log failed or could not be opened.",
            lambda sources: _one(_offline(sources))),
        _gauge("penstock_producer_ids", "Idempotent producers remembered, for each partition that they wrote to.",
            lambda sources: _one(sum(len(replica.producers) for replica in sources.services.partitions.replicas()))),
        _counter("penstock_retention_deleted_segments_total", "Segments that were deleted for their age or size.",
            lambda sources: _one(sources.upkeep.housekeeping.deleted_segments)),
        _histogram("penstock_flush_duration_seconds", "Rounds of the flusher: how long each took.",
            lambda sources: _one(sources.services.meters.flushes.seconds)),
        _histogram("penstock_flush_logs", "Rounds of the flusher: how many logs each made durable.",
            lambda sources: _one(sources.services.meters.flushes.logs)),
        _counter("penstock_flush_failures_total", "Rounds of the flusher that failed; their logs went offline.",
            lambda sources: _one(sources.services.meters.flushes.failures)),
        _gauge("penstock_disk_free_bytes", "What the disk of the data folder has left, at the last look.",
            lambda sources: _one(sources.services.disk.free_bytes)),
        _gauge("penstock_disk_size_bytes", "How large it is.",
            lambda sources: _one(sources.services.disk.total_bytes)),
        _gauge("penstock_disk_reserve_bytes", "What is to stay free (penstock.disk.reserve.bytes).",
            lambda sources: _one(sources.services.disk.reserve_bytes)),
        _gauge("penstock_disk_full", "1 while records are refused because less than that is free.",
            lambda sources: _one(int(sources.services.disk.is_low))),
        _counter("penstock_scrubbed_bytes_total", "Bytes of closed segments that were checked for changed bits.",
            lambda sources: _one(sources.upkeep.scrubbing.bytes_scrubbed)),
        _counter("penstock_scrub_rounds_total", "How often all closed segments were checked to the end.",
            lambda sources: _one(sources.upkeep.scrubbing.rounds)),
        _counter("penstock_scrub_corrupt_batches_total", "Damaged batches that were found so.",
            lambda sources: _one(sources.upkeep.scrubbing.corrupt_batches)),
    )


def _compaction() -> tuple[BrokerFamily, ...]:
    return (
        _counter("penstock_cleaner_rounds_total", "Rounds of compaction that came to their end, of one log each.",
            lambda sources: _one(sources.upkeep.compacting.rounds)),
        _counter("penstock_cleaner_failures_total",
            "Rounds that failed; their logs are left alone for a while, and the broker's log says why.",
            lambda sources: _one(sources.upkeep.compacting.failures)),
        _counter("penstock_cleaner_read_bytes_total", "Bytes of segments that they have read.",
            lambda sources: _one(sources.upkeep.compacting.bytes_read)),
        _counter("penstock_cleaner_written_bytes_total", "Bytes of segments that they have written.",
            lambda sources: _one(sources.upkeep.compacting.bytes_written)),
        _counter("penstock_cleaner_dropped_records_total",
            "Records that they have dropped: there is a newer one with the key, or the tombstone has "
            "served its time.",
            lambda sources: _one(sources.upkeep.compacting.records_dropped)),
        _counter("penstock_cleaner_cpu_seconds_total", "Processor time that they took, in the helper process.",
            lambda sources: _one(sources.upkeep.compacting.cpu_seconds)),
        _gauge("penstock_cleaner_dirtiest_ratio",
            "How much of the log that needs compaction most waits for it, from 0 to 1, at the last look.",
            lambda sources: _one(sources.upkeep.compacting.dirtiest_ratio)),
        _gauge("penstock_cleaner_seconds_since_last_round", "Time since the last of them; left out if there was none.",
            lambda sources: _one(sources.upkeep.compacting.seconds_since_last_round)),
        _counter("penstock_cleaner_helper_restarts_total", "How often the helper process died and was started again.",
            lambda sources: _one(sources.upkeep.compacting.helper_restarts)),
    )


def _cluster() -> tuple[BrokerFamily, ...]:
    return (
        _gauge("penstock_controller", "1 while this broker is the controller of its cluster.",
            lambda sources: _one(int(sources.services.controlling.is_controller))),
        _gauge("penstock_controller_epoch", "The epoch of the controller, by what this broker knows.",
            lambda sources: _one(sources.services.image.controller_epoch)),
        _gauge("penstock_metadata_index", "The last entry of the metadata log that this broker has.",
            lambda sources: _one(sources.services.cluster.index)),
        _gauge("penstock_metadata_contact",
            "1 for the contact that this broker has with the metadata store: good; doubtful, when the store was "
            "silent for two thirds of a session; or lost, when it was for a whole one.",
            _contact, "contact"),
        _gauge("penstock_fenced",
            "1 while other brokers may take this one for dead: records are taken with acks=all only.",
            lambda sources: _one(int(sources.services.registration.is_fenced))),
        _gauge("penstock_brokers_alive", "Brokers of the cluster that are alive.",
            lambda sources: _one(len(sources.services.image.live_brokers()))),
    )


def _replication() -> tuple[BrokerFamily, ...]:
    return (
        _gauge("penstock_under_replicated_partitions",
            "Partitions that this broker leads and of which a replica is not in sync, without replicas that are being "
            "added.",
            lambda sources: _one(_under_replicated(sources))),
        _gauge("penstock_reassigning_partitions",
            "Partitions that this broker leads and that get more replicas, which do not have everything yet.",
            lambda sources: _one(_reassigning(sources))),
        _gauge("penstock_partitions_below_min_isr",
            "Partitions that this broker leads and that have too few in-sync replicas for acks=all.",
            lambda sources: _one(sum(not each.leader.takes_all for each in sources.services.partitions.all()))),
        _gauge("penstock_in_sync_replicas", "In-sync replicas of all partitions that this broker leads.",
            lambda sources: _one(sum(len(each.leader.isr) for each in sources.services.partitions.all()))),
        _gauge("penstock_eligible_leader_replicas",
            "Replicas of the whole cluster that are not in sync and may lead nevertheless, since they have all "
            "committed records, by what this broker knows.",
            lambda sources: _one(_eligible(sources))),
        _gauge("penstock_partitions_without_leader",
            "Partitions of the whole cluster that have no leader, by what this broker knows.",
            lambda sources: _one(_leaderless(sources))),
        _gauge("penstock_follower_lag_messages",
            "How many messages another broker lacks of the partition that this one leads and in which it lacks most.",
            _lags(lambda lag: lag.messages), "broker"),
        _gauge("penstock_follower_lag_bytes",
            "About how many bytes another broker lacks of all partitions that this one leads.",
            _lags(lambda lag: lag.bytes), "broker"),
        _gauge("penstock_follower_lag_seconds",
            "How long another broker has not had everything of a partition that this one leads, at most; 0 if it has.",
            _lags(lambda lag: lag.late_ms / 1000), "broker"),
        _counter("penstock_in_sync_looks_total",
            "Partitions that were looked at for who is in sync: those with a follower that lacks something, or that is "
            "not in sync.",
            lambda sources: _one(sources.services.meters.in_sync.looks)),
        _counter("penstock_in_sync_proposals_total",
            "Changes of the in-sync replicas of a partition that this broker asked the controller for, as its leader.",
            lambda sources: _one(sources.services.meters.in_sync.proposals)),
        _counter("penstock_in_sync_requests_total", "Requests in which it did so, each for many partitions.",
            lambda sources: _one(sources.services.meters.in_sync.requests)),
        _counter("penstock_unclean_elections_total",
            "Leaders that may lack committed records and were elected on command, by this broker as the controller.",
            lambda sources: _one(sources.services.controlling.unclean_elections)),
    )


def _process() -> tuple[BrokerFamily, ...]:
    return (
        _histogram("penstock_event_loop_lag_seconds",
            "How late a timer was that is due every 20 ms under load, every 100 ms without: what the event loop was "
            "doing instead.",
            lambda sources: _one(sources.services.meters.loop_lag.seconds)),
        _gauge("penstock_event_loop_lag_recent_max_seconds", "The most of it in the last minute or two.",
            lambda sources: _one(sources.services.meters.loop_lag.recent.value)),
        _histogram("penstock_gc_pause_seconds", "How long each garbage collection took.",
            lambda sources: _one(sources.services.meters.gc_pauses.seconds)),
        _gauge("penstock_gc_pause_recent_max_seconds", "The longest of them in the last minute or two.",
            lambda sources: _one(sources.services.meters.gc_pauses.recent.value)),
        _counter("penstock_gc_collections_total", "Garbage collections, by generation; 2 looks at everything.",
            _collections, "generation"),
        _counter("penstock_gc_collected_objects_total", "Objects that garbage collections found.",
            lambda sources: _one(sources.services.meters.gc_pauses.collected)),
        _gauge("penstock_process_resident_memory_bytes", "Memory in use. Linux only.",
            lambda sources: _one(process.resident_bytes())),
        _counter("penstock_process_cpu_seconds_total", "Processor time used, by all threads.",
            lambda sources: _one(process.cpu_seconds())),
        _gauge("penstock_process_open_fds", "File descriptors in use. Linux only.",
            lambda sources: _one(process.open_descriptors())),
        _gauge("penstock_process_max_fds", "File descriptors allowed.",
            lambda sources: _one(process.max_descriptors())),
        _gauge("penstock_uptime_seconds", "Time since the broker began to start.",
            lambda sources: _one(sources.services.meters.uptime_seconds)),
        _gauge("penstock_build_info", "Always 1: which Penstock on which Python, and who it is.",
            _build, "version", "python", "node_id", "cluster_id"),
    )


def _topics() -> tuple[PartitionFamily, ...]:
    return (
        _of_topic("penstock_topic_appended_records_total", "Records appended to the topic's partitions on this broker.",
            lambda partition: partition.appended_records),
        _of_topic("penstock_topic_appended_batches_total", "Record batches appended.",
            lambda partition: partition.appended_batches),
        _of_topic("penstock_topic_appended_bytes_total", "Bytes of record batches appended, compressed as they came.",
            lambda partition: partition.appended_bytes),
        _of_topic("penstock_topic_fetched_bytes_total", "Bytes of record batches handed to readers.",
            lambda partition: partition.fetched_bytes),
    )


def _partitions() -> tuple[PartitionFamily, ...]:
    return (
        _of_partition("penstock_partition_size_bytes", "Bytes of all segments.",
            lambda partition: partition.log.size),
        _of_partition("penstock_partition_segments", "Number of segments.",
            lambda partition: len(partition.log.segments)),
        _of_partition("penstock_partition_log_start_offset", "The first offset that can be read.",
            lambda partition: partition.log.start_offset),
        _of_partition("penstock_partition_log_end_offset", "The offset that the next record gets.",
            lambda partition: partition.log.end_offset),
        _of_partition("penstock_partition_high_watermark", "Up to which offset records can be read.",
            lambda partition: partition.high_watermark),
    )


def _groups() -> tuple[GroupFamily, ...]:
    return (
        _of_group("penstock_group_lag_messages",
            "Messages that a group has not processed, by what it has committed; of the groups that this broker "
            "coordinates, in the partitions that it leads.",
            lambda lag: lag.messages),
        _of_group("penstock_group_lag_seconds",
            "How old the oldest of them is, by the timestamp of its batch; 0 if there is none. Left out while it is "
            "unknown: the message is deleted, or it is on the disk alone and was not read yet.",
            lambda lag: lag.seconds),
        _of_group("penstock_group_committed_offset",
            "What a group has committed; of the groups that this broker coordinates, in all partitions. Any replica's "
            "penstock_partition_high_watermark less this is the lag, whichever broker leads.",
            lambda lag: lag.committed),
    )
# fmt: on


BROKER_FAMILIES: Final = {
    "Requests": _requests(),
    "Connections": _connections(),
    "Logs, flushes and the disk": _logs(),
    "Compaction": _compaction(),
    "The cluster": _cluster(),
    "Replication": _replication(),
    "The process": _process(),
}
"""By the titles that they have in the reference."""

TOPIC_FAMILIES: Final = _topics()
PARTITION_FAMILIES: Final = _partitions()
GROUP_FAMILIES: Final = _groups()
