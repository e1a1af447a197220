"""What is read: the log as far as it goes, the lake below it, and only what may be of the time asked for."""

from pathlib import Path
from typing import Any

import pytest

from penstock.client.admin.offsets import delete_records, list_offsets
from penstock.client.errors import unwrap
from penstock.client.metadata import TopicPartition
from penstock.protocol.records import NewRecord
from penstock.spark import positions
from penstock.spark.lake.archiving import find_source, source_options
from penstock.spark.lake.lake import LakeError
from penstock.spark.statistics import plan as stats_plan
from penstock.spark.statistics.plan import Piece, Scope, plan
from tests.spark.cluster import TestCluster
from tests.spark.lakes import add, span


def pieces(cluster: TestCluster, topic: str, lake: str | None = None, **options: int | Scope) -> list[Piece]:
    wanted = source_options(topic, cluster.bootstrap)
    source = find_source(cluster.link, topic)
    told = {"min_parts": 1, "scope": Scope(), **options}
    return cluster.link.run(plan(cluster.cluster, wanted, source, lake, **told))  # type: ignore[arg-type]


def spans(found: list[Piece]) -> list[tuple[int, int, int, bool]]:
    return [(each.range.partition, each.range.start, each.range.end, each.lake is not None) for each in found]


def test_the_first_piece_of_a_log_leads_and_knows_whether_the_log_is_whole(cluster: TestCluster) -> None:
    topic = cluster.create("planned")
    cluster.send_count(topic, 10)
    found = pieces(cluster, topic, min_parts=2)
    assert spans(found) == [(0, 0, 5, False), (0, 5, 10, False)]
    assert [(each.is_lead, each.is_from_beginning) for each in found] == [(True, True), (False, False)]
    cluster.delete_records(topic, 4)
    found = pieces(cluster, topic)
    assert spans(found) == [(0, 4, 10, False)]
    assert (found[0].is_lead, found[0].is_from_beginning) == (True, False)


def test_large_ranges_are_cut_so_that_progress_shows(cluster: TestCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats_plan, "TASK_BYTES", 1000)
    topic = cluster.create("large")
    cluster.send(topic, ["x" * 100] * 50)
    assert 5 <= len(pieces(cluster, topic)) <= 7


def test_what_is_before_the_first_record_of_the_time_is_not_read(cluster: TestCluster) -> None:
    topic = cluster.create("timed", 2)
    cluster.send(topic, [NewRecord(b"x", timestamp=number) for number in range(100, 200)])
    cluster.send(topic, [NewRecord(b"x", timestamp=50)], 1)
    assert spans(pieces(cluster, topic, scope=Scope(150))) == [(0, 50, 100, False)]
    assert pieces(cluster, topic, scope=Scope(500)) == []


def test_the_lake_is_read_below_the_beginning_of_the_log_alone(cluster: TestCluster, tmp_path: Path) -> None:
    topic = cluster.create("archived", 2)
    cluster.send_count(topic, 30)
    source = find_source(cluster.link, topic)
    lake = add(tmp_path, span(0, 20, source=source), source=source).path
    assert spans(pieces(cluster, topic, lake)) == [(0, 0, 30, False)]
    cluster.delete_records(topic, 12)
    assert spans(pieces(cluster, topic, lake)) == [(0, 0, 12, True), (0, 12, 30, False)]
    cluster.delete_records(topic, 25)
    assert spans(pieces(cluster, topic, lake)) == [(0, 0, 20, True), (0, 25, 30, False)]
    assert spans(pieces(cluster, topic, lake, scope=Scope(until_ms=1_000))) == [(0, 25, 30, False)]
    assert {each.archived_in for each in pieces(cluster, topic, lake)} == {None, lake}


@pytest.mark.parametrize("since_ms", [None, 1])
@pytest.mark.parametrize("moment", range(4))
def test_what_is_archived_and_truncated_meanwhile_is_read_once(
    cluster: TestCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, since_ms: int | None, moment: int
) -> None:
    topic = cluster.create("raced")
    cluster.send_count(topic, 30)
    source = find_source(cluster.link, topic)
    lake = add(tmp_path, span(0, 10, source=source), source=source).path
    cluster.delete_records(topic, 10)
    moments = iter(range(10))

    async def archive_at(reached: int) -> None:
        if reached == moment:
            add(tmp_path, span(10, 20, source=source), source=source, run="ba9876543210")
            unwrap(await delete_records(cluster.cluster, {TopicPartition(topic, 0): 20}))

    async def list_while_others_archive(*args: Any, **options: Any) -> Any:
        await archive_at(next(moments))
        listed = await list_offsets(*args, **options)
        await archive_at(next(moments))
        return listed

    for module in (positions, stats_plan):
        monkeypatch.setattr(module, "list_offsets", list_while_others_archive)
    found = pieces(cluster, topic, lake, scope=Scope(since_ms))
    offsets = [offset for each in found for offset in range(each.range.start, each.range.end)]
    assert (sorted(offsets), cluster.first_offset(topic)) == (list(range(30)), 20)


def test_a_lake_that_is_not_there_is_an_error(cluster: TestCluster, tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="archive the topic first"):
        pieces(cluster, cluster.create("poor"), str(tmp_path))
