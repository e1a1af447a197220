"""Every metric by its name, and what a known set of requests does to it."""

import re

import pytest
from msgspec.structs import asdict

from penstock import __version__
from penstock.broker.metrics.catalogue import BROKER_FAMILIES, GROUP_FAMILIES, PARTITION_FAMILIES, TOPIC_FAMILIES
from penstock.broker.metrics.exposition import Head
from penstock.broker.network.listener import CLOSE_KINDS
from penstock.machines.cluster_records import ReassignedPartition
from penstock.protocol.records import NewRecord, build
from penstock.protocol.schemas.metadata import MetadataRequest
from tests.broker.harness import (
    NOW_MS,
    BrokenFiles,
    FakeClock,
    batch,
    create_topics,
    in_loop,
    running,
    running_cluster,
    until,
)
from tests.broker.metrics.scraping import ON, Series, families, page, scrape

HEADS = [
    *(item.head for items in BROKER_FAMILIES.values() for item in items),
    *(item.head for item in (*TOPIC_FAMILIES, *PARTITION_FAMILIES)),
    *(item.head for item in GROUP_FAMILIES),
]


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.name)
def test_names_are_as_prometheus_wants_them(head: Head) -> None:
    assert re.fullmatch(r"penstock(_[a-z]+)+", head.name)
    assert head.name.endswith("_total") == (head.kind == "counter")
    assert not re.search(r"_(ms|milliseconds|kb|count|bucket|sum)(_|$)", head.name)
    assert all(re.fullmatch(r"[a-z_]+", label) and label != "le" for label in head.labels)
    assert head.help.endswith(".")


def test_no_name_is_there_twice() -> None:
    assert len({head.name for head in HEADS}) == len(HEADS)


@in_loop
async def test_the_page_has_every_family_once_as_it_is_declared() -> None:
    async with running(ON) as node:
        text = await page(node)
        found = families(text)
        assert set(found) == {head.name.removesuffix("_total") for head in HEADS}
        assert text.count("# TYPE ") == len(HEADS)
        for head in HEADS:
            metric = found[head.name.removesuffix("_total")]
            assert (metric.type, metric.documentation) == (head.kind, head.help)
            for sample in metric.samples:
                assert tuple(label for label in sample.labels if label != "le") == head.labels


@in_loop
async def test_requests_move_the_counters_by_what_they_are() -> None:
    async with running(ON) as node:
        client = await node.connect()
        await client.create_topic("orders", 2)
        before = await scrape(node)
        assert before["penstock_requests_total", ("Produce",)] == 0
        batches = [batch(b"a", b"b", b"c"), batch(b"d"), batch(bytes(100_000), b"f")]
        for number, records in enumerate(batches):
            await client.produce("orders", records, partition=number % 2)
        await client.fetch("orders", partition=0)
        await client.fetch("orders", partition=1)
        await client.fetch("orders", partition=1)
        await client.ask(MetadataRequest(), 12)
        await client.produce("nowhere", batch(b"a"))
        after = await scrape(node)

        moved = {key: after[key] - before.get(key, 0) for key in after if after[key] != before.get(key, 0)}
        size = [len(records) for records in batches]
        assert moved["penstock_requests_total", ("Produce",)] == 4
        assert moved["penstock_requests_total", ("Fetch",)] == 3
        assert moved["penstock_requests_total", ("Metadata",)] == 1
        assert ("penstock_requests_total", ("CreateTopics",)) not in moved
        assert moved["penstock_request_duration_seconds_count", ("Produce",)] == 4
        assert moved["penstock_request_errors_total", ("Produce", "UNKNOWN_TOPIC_OR_PARTITION")] == 1
        assert moved["penstock_topic_appended_records_total", ("orders",)] == 6
        assert moved["penstock_topic_appended_batches_total", ("orders",)] == 3
        assert moved["penstock_topic_appended_bytes_total", ("orders",)] == sum(size)
        assert moved["penstock_topic_fetched_bytes_total", ("orders",)] == size[0] + size[2] + 2 * size[1]
        assert moved["penstock_partition_size_bytes", ("orders", "0")] == size[0] + size[2]
        assert moved["penstock_partition_log_end_offset", ("orders", "0")] == 5
        assert moved["penstock_partition_high_watermark", ("orders", "1")] == 1
        assert after["penstock_partition_log_start_offset", ("orders", "1")] == 0
        assert after["penstock_partition_segments", ("orders", "1")] == 1
        assert after["penstock_partitions", ()] == 2
        assert after["penstock_connections", ()] == 1
        assert after["penstock_unanswered_request_bytes", ()] == 0
        check_buckets(after)


def check_buckets(found: Series) -> None:
    histograms: dict[tuple[str, tuple[str, ...]], list[tuple[float, float]]] = {}
    for (name, labels), value in found.items():
        if name.endswith("_bucket"):
            histograms.setdefault((name, labels[:-1]), []).append((float(labels[-1]), value))
    assert len(histograms) >= 6
    for (name, labels), buckets in histograms.items():
        assert buckets == sorted(buckets), name
        assert [value for _, value in buckets] == sorted(value for _, value in buckets)
        assert buckets[-1] == (float("inf"), found[name.replace("_bucket", "_count"), labels])


@in_loop
async def test_connections_are_counted_with_the_reason_of_their_end() -> None:
    async with running({**ON, "max.connections": "2"}) as node:
        first, second = await node.connect(), await node.connect()
        await until(lambda: node.broker.listener.accepted == 2)
        third = await node.connect()
        await third.closed()
        first.send_bytes(b"\xff\xff\xff\xff")
        await first.closed()
        second.close()
        await until(lambda: not node.broker.listener.connections)
        found = await scrape(node)
        assert found["penstock_connections", ()] == 0
        assert found["penstock_connections_accepted_total", ()] == 3
        closed = {kind: found["penstock_connections_closed_total", (kind,)] for kind in CLOSE_KINDS}
        assert found["penstock_max_connections", ()] == 2
        assert closed == {"client": 1, "error": 1, "limit": 1, "idle": 0, "stalled": 0, "stop": 0}


@in_loop
async def test_an_error_without_a_name_is_told_by_its_number() -> None:
    async with running(ON) as node:
        next(iter(node.broker.services.meters.requests.all())).errors[12345] = 2
        assert (await scrape(node))["penstock_request_errors_total", ("Produce", "12345")] == 2


@in_loop
async def test_deleted_segments_and_producers_are_counted() -> None:
    clock = FakeClock()
    async with running(ON, clock=clock) as node:
        client = await node.connect()
        await client.create_topic("orders", configs={"internal.segment.bytes": "200", "retention.ms": "60000"})
        for number in range(5):
            await client.produce("orders", batch(bytes(60), producer=(7, 0, number)))
        found = await scrape(node)
        assert found["penstock_producer_ids", ()] == 1
        assert found["penstock_retention_deleted_segments_total", ()] == 0
        clock.advance(61_000)
        deleted = await node.broker.upkeep.housekeeping.sweep()
        assert deleted > 0
        found = await scrape(node)
        assert found["penstock_retention_deleted_segments_total", ()] == deleted
        assert found["penstock_partition_log_start_offset", ("orders", "0")] == 5


@in_loop
async def test_partitions_that_cannot_be_served_are_counted() -> None:
    files = BrokenFiles()
    async with running(ON, files=files) as node:
        client = await node.connect()
        await client.create_topic("orders", 2)
        await client.produce("orders", batch(b"a"))
        assert (await scrape(node))["penstock_partitions_offline", ()] == 0
        node.partition("orders").log.fail(OSError("input/output error"))
        assert (await scrape(node))["penstock_partitions_offline", ()] == 1
        node.broker.services.partitions.failed["elsewhere", 0] = "could not be opened"
        assert (await scrape(node))["penstock_partitions_offline", ()] == 2


@in_loop
async def test_the_disk_is_described_as_the_broker_last_saw_it() -> None:
    async with running(ON) as node:
        disk = node.broker.services.disk
        disk.close()
        found = await scrape(node)
        assert found["penstock_disk_free_bytes", ()] == disk.free_bytes
        assert found["penstock_disk_size_bytes", ()] == disk.total_bytes
        assert found["penstock_disk_reserve_bytes", ()] == disk.reserve_bytes
        assert found["penstock_disk_full", ()] == 0
        disk.is_low = True
        assert (await scrape(node))["penstock_disk_full", ()] == 1


@in_loop
async def test_what_the_scrubber_does_is_counted() -> None:
    async with running(ON) as node:
        client = await node.connect()
        await client.create_topic("orders", configs={"internal.segment.bytes": "200"})
        for _ in range(5):
            await client.produce("orders", batch(bytes(60)))
        while await node.broker.upkeep.scrubbing.scrub():
            pass
        found = await scrape(node)
        assert found["penstock_scrubbed_bytes_total", ()] == node.broker.upkeep.scrubbing.bytes_scrubbed > 0
        assert found["penstock_scrub_rounds_total", ()] >= 1
        assert found["penstock_scrub_corrupt_batches_total", ()] == 0


@in_loop
async def test_what_compaction_does_is_counted() -> None:
    async with running({**ON, "log.cleaner.backoff.ms": "1000000"}) as node:
        client = await node.connect()
        configs = {"cleanup.policy": "compact", "internal.segment.bytes": "200", "min.cleanable.dirty.ratio": "0.01"}
        await client.create_topic("orders", configs=configs)
        assert ("penstock_cleaner_seconds_since_last_round", ()) not in await scrape(node)
        for _ in range(5):
            await client.produce("orders", build([NewRecord(bytes(60), key=b"k", timestamp=NOW_MS)]))
        log = node.partition("orders").log
        await until(lambda: log.recovery_point >= 4 == log.segments[-1].base_offset)
        assert await node.broker.upkeep.compacting.compact_next()
        found = await scrape(node)
        assert found["penstock_cleaner_rounds_total", ()] == 1
        assert found["penstock_cleaner_failures_total", ()] == found["penstock_cleaner_helper_restarts_total", ()] == 0
        assert found["penstock_cleaner_read_bytes_total", ()] > found["penstock_cleaner_written_bytes_total", ()] > 0
        assert found["penstock_cleaner_dropped_records_total", ()] == 3
        assert found["penstock_cleaner_cpu_seconds_total", ()] > 0
        assert found["penstock_cleaner_seconds_since_last_round", ()] >= 0
        assert found["penstock_cleaner_dirtiest_ratio", ()] == 1
        assert not await node.broker.upkeep.compacting.compact_next()
        assert (await scrape(node))["penstock_cleaner_dirtiest_ratio", ()] == 0


@in_loop
async def test_the_cluster_is_described_as_this_broker_sees_it() -> None:
    async with running_cluster(2, ON, session_seconds=0.3) as nodes:
        first, second = [await scrape(node) for node in nodes]
        assert (first["penstock_controller", ()], second["penstock_controller", ()]) == (1, 0)
        assert first["penstock_controller_epoch", ()] == second["penstock_controller_epoch", ()] == 1
        assert first["penstock_brokers_alive", ()] == second["penstock_brokers_alive", ()] == 2
        assert second["penstock_metadata_index", ()] == nodes[1].broker.services.cluster.index > 0
        assert second["penstock_metadata_contact", ("good",)] == 1
        assert second["penstock_fenced", ()] == 0
        nodes[1].store.cut()
        await until(lambda: nodes[1].broker.services.registration.is_fenced)
        second = await scrape(nodes[1])
        assert second["penstock_metadata_contact", ("good",)] == 0
        assert second["penstock_metadata_contact", ("lost",)] == 1
        assert second["penstock_fenced", ()] == 1
        nodes[1].store.mend()


@in_loop
async def test_the_process_is_described() -> None:
    async with running(ON) as node:
        await until(lambda: node.broker.services.meters.loop_lag.seconds.count)
        found = await scrape(node)
        [build] = [labels for name, labels in found if name == "penstock_build_info"]
        assert (build[0], build[2:]) == (__version__, ("0", node.broker.cluster_id))
        assert found["penstock_uptime_seconds", ()] > 0
        assert found["penstock_process_cpu_seconds_total", ()] > 0
        assert found["penstock_process_max_fds", ()] > 0
        assert found["penstock_event_loop_lag_seconds_count", ()] > 0
        assert ("penstock_gc_collections_total", ("2",)) in found


@in_loop
async def test_a_deleted_topic_is_gone_from_the_page() -> None:
    async with running(ON) as node:
        client = await node.connect()
        await client.create_topic("orders")
        await client.produce("orders", batch(b"a"))
        assert any("orders" in labels for _, labels in await scrape(node))
        await node.broker.services.controlling.change(lambda controller: controller.delete_topic("orders"))
        assert not any("orders" in labels for _, labels in await scrape(node))


@in_loop
async def test_a_leader_counts_replicas_that_are_out_of_sync_and_how_far_they_are_behind() -> None:
    async with running_cluster(2, ON) as nodes:
        client = await nodes[0].connect()
        await client.ask(create_topics("orders", 1, {"min.insync.replicas": "2"}, replication_factor=2), 7)
        services = nodes[0].broker.services
        await until(lambda: services.image.topics["orders"].partitions[0].leader == 0)
        partition = services.partitions.all()[0]
        await until(lambda: partition.leader.followers[1].end_offset == 0)
        series = await scrape(nodes[0])
        assert series["penstock_under_replicated_partitions", ()] == 0
        assert series["penstock_in_sync_replicas", ()] == 2
        assert series["penstock_follower_lag_messages", ("1",)] == 0
        assert series["penstock_follower_lag_bytes", ("1",)] == 0
        assert series["penstock_follower_lag_seconds", ("1",)] == 0
        assert series["penstock_eligible_leader_replicas", ()] == 0
        await nodes[1].stop()
        await until(lambda: len(partition.leader.isr) == 1)
        await client.produce("orders", batch(b"a", b"b", b"c"), acks=1)
        series = await scrape(nodes[0])
        assert series["penstock_under_replicated_partitions", ()] == 1
        assert series["penstock_partitions_below_min_isr", ()] == 1
        assert series["penstock_in_sync_replicas", ()] == 1
        assert series["penstock_partitions_without_leader", ()] == 0
        assert series["penstock_eligible_leader_replicas", ()] == 1
        assert series["penstock_follower_lag_messages", ("1",)] == 3
        assert series["penstock_follower_lag_bytes", ("1",)] == partition.log.size > 0
        assert series["penstock_follower_lag_seconds", ("1",)] > 0
        assert series["penstock_unclean_elections_total", ()] == 0
        assert series["penstock_reassigning_partitions", ()] == 0
        # As if that replica had been added, and did not have everything yet.
        partitions = services.image.topics["orders"].partitions
        partitions[0] = ReassignedPartition(**asdict(partitions[0]), adding=(1,))
        series = await scrape(nodes[0])
        assert series["penstock_under_replicated_partitions", ()] == 0
        assert series["penstock_reassigning_partitions", ()] == 1
