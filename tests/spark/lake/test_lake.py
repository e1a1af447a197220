"""The table: what it knows about what is archived, and which commits it refuses."""

import os
import threading
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from penstock.spark.lake import lake as lake_module
from penstock.spark.lake.files import FileName, write_file
from penstock.spark.lake.lake import Lake, LakeError, OverlapError, Source, list_names, locate, open_filesystem
from tests.spark.lakes import RUN, SOURCE, add, names, rows, span, write


def test_a_table_that_is_not_there_has_nothing(tmp_path: Path) -> None:
    lake = Lake.load(tmp_path / "none")
    assert not lake.exists
    assert (lake.version, lake.id, lake.ends(SOURCE), lake.files(), lake.runs()) == (-1, "", {}, [], set())
    assert not (tmp_path / "none").exists()


def test_a_commit_adds_its_files_and_tells_how_far_each_partition_is(tmp_path: Path) -> None:
    lake = add(tmp_path, span(5, 10), span(0, 7, 1))
    assert lake.exists
    assert lake.version == 0
    assert lake.ends(SOURCE) == {0: 10, 1: 7}
    assert sorted(each.rows for each in lake.files()) == [5, 7]
    assert DeltaTable(tmp_path).to_pyarrow_table().num_rows == 12
    assert add(tmp_path, span(10, 12), run="b" * 12).ends(SOURCE) == {0: 12, 1: 7}


def test_a_commit_tells_its_ranges_in_the_history(tmp_path: Path) -> None:
    add(tmp_path, span(0, 10))
    Lake.load(tmp_path).commit(SOURCE, [span(15, 20)], [write(tmp_path, span(15, 20))], run=RUN, lost=[span(10, 15)])
    last, first = DeltaTable(tmp_path).history()
    assert first["penstock.ranges"] == [{"partition": 0, "start": 0, "end": 10}]
    assert last["penstock.ranges"] == [{"partition": 0, "start": 15, "end": 20}]
    assert last["penstock.lost"] == [{"partition": 0, "start": 10, "end": 15}]
    assert (last["penstock.topic"], last["penstock.topicId"]) == ("orders", "an-id")
    assert Lake.load(tmp_path).runs() == {RUN}


def test_a_commit_of_a_range_without_rows_still_tells_how_far_it_is(tmp_path: Path) -> None:
    add(tmp_path, span(0, 10))
    lake = Lake.load(tmp_path).commit(SOURCE, [span(10, 20)], [], run=RUN)
    assert lake.ends(SOURCE) == {0: 20}
    assert len(lake.files()) == 1


def test_files_tell_their_partitions_offsets_and_times(tmp_path: Path) -> None:
    [file] = add(tmp_path, span(5, 10, 1)).files()
    assert (file.partitions, file.offsets, file.times_ms) == ((1, 1), (5, 9), (1_700_000_000_005, 1_700_000_000_009))
    assert file.may_have(1)
    assert file.may_have(1, start=9)
    assert file.may_have(1, start=0, end=6)
    assert not file.may_have(0)
    assert not file.may_have(1, start=10)
    assert not file.may_have(1, end=5)


@pytest.mark.parametrize(("start", "what"), [(12, "a gap"), (8, "an overlap"), (0, "an overlap")])
def test_a_gap_or_an_overlap_is_refused(tmp_path: Path, start: int, what: str) -> None:
    lake = add(tmp_path, span(0, 10))
    with pytest.raises(OverlapError, match=f"partition 0 up to offset 10, and offsets from {start} on.*{what}"):
        add(tmp_path, span(start, 20), run="b" * 12)
    assert Lake.load(tmp_path).version == lake.version


def test_of_two_archivers_at_once_one_is_refused(tmp_path: Path) -> None:
    add(tmp_path, span(0, 10))
    first, second = Lake.load(tmp_path), Lake.load(tmp_path)
    first.commit(SOURCE, [span(10, 20)], [write(tmp_path, span(10, 20))], run=RUN)
    with pytest.raises(OverlapError, match=r"up to offset 20.*Another archive run was faster"):
        second.commit(SOURCE, [span(10, 20)], [write(tmp_path, span(10, 20), attempt=1)], run="b" * 12)
    assert DeltaTable(tmp_path).to_pyarrow_table().num_rows == 20


def test_of_two_archivers_that_make_the_table_one_is_refused(tmp_path: Path) -> None:
    first, second = Lake.load(tmp_path), Lake.load(tmp_path)
    first.commit(SOURCE, [span(0, 10)], [write(tmp_path, span(0, 10))], run=RUN)
    with pytest.raises(OverlapError):
        second.commit(SOURCE, [span(0, 10)], [write(tmp_path, span(0, 10), attempt=1)], run="b" * 12)
    assert DeltaTable(tmp_path).to_pyarrow_table().num_rows == 10


def test_many_archivers_in_a_race_add_each_offset_once(tmp_path: Path) -> None:
    refusals: list[LakeError] = []

    def archive(number: int) -> None:
        for turn in range(5):
            lake = Lake.load(tmp_path)
            start = lake.ends(SOURCE).get(0, 0)
            wanted = span(start, start + 10)
            try:
                lake.commit(SOURCE, [wanted], [write(tmp_path, wanted, attempt=number * 10 + turn)], run=RUN)
            except LakeError as error:
                refusals.append(error)

    threads = [threading.Thread(target=archive, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(isinstance(each, OverlapError) for each in refusals)
    offsets = DeltaTable(tmp_path).to_pyarrow_table(columns=["offset"])["offset"].to_pylist()
    assert sorted(offsets) == list(range(len(offsets)))
    assert len(offsets) == Lake.load(tmp_path).ends(SOURCE)[0] == 10 * (20 - len(refusals))


def test_commits_of_others_meanwhile_are_no_conflict(tmp_path: Path) -> None:
    add(tmp_path, span(0, 10))
    lake = add(tmp_path, span(10, 20), run="b" * 12)
    DeltaTable(tmp_path).optimize.compact()
    assert lake.commit(SOURCE, [span(20, 30)], [write(tmp_path, span(20, 30))], run="c" * 12).version == 3
    assert DeltaTable(tmp_path).to_pyarrow_table().num_rows == 30


def test_when_others_commit_all_the_time_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = add(tmp_path, span(0, 10))
    DeltaTable(tmp_path).create_checkpoint()
    add(tmp_path, span(0, 10, 1), run="b" * 12)
    monkeypatch.setattr(lake_module, "TRIES", 1)
    with pytest.raises(LakeError, match="others commit to the table"):
        lake.commit(SOURCE, [span(10, 20)], [write(tmp_path, span(10, 20))], run="c" * 12)


def test_how_far_it_is_survives_optimization_and_checkpoints(tmp_path: Path) -> None:
    add(tmp_path, span(0, 10))
    add(tmp_path, span(10, 20), run="b" * 12)
    table = DeltaTable(tmp_path)
    table.optimize.compact()
    table.create_checkpoint()
    for entry in (tmp_path / "_delta_log").glob("0000000000000000000[01].json"):
        entry.unlink()
    lake = Lake.load(tmp_path)
    assert lake.ends(SOURCE) == {0: 20}
    assert [each.rows for each in lake.files()] == [20]


def test_a_topic_that_was_made_again_is_refused(tmp_path: Path) -> None:
    add(tmp_path, span(0, 10))
    again = Source("orders", "another-id", 2)
    with pytest.raises(LakeError, match=r"does not belong to topic 'orders' \(id another-id\).*\(id an-id\)"):
        Lake.load(tmp_path).ends(again)


def test_a_table_of_somebody_else_is_refused(tmp_path: Path) -> None:
    write_deltalake(tmp_path, rows(range(3)))
    with pytest.raises(LakeError, match="something that penstock has not archived"):
        Lake.load(tmp_path).ends(SOURCE)


def test_a_partition_that_is_new_may_begin_anywhere(tmp_path: Path) -> None:
    add(tmp_path, span(0, 10))
    assert add(tmp_path, span(500, 510, 1), run="b" * 12).ends(SOURCE) == {0: 10, 1: 510}


def test_a_table_whose_files_do_not_tell_all_is_refused(tmp_path: Path) -> None:
    write_deltalake(tmp_path, rows(range(3)), configuration={"delta.enableDeletionVectors": "true"})
    with pytest.raises(LakeError, match="uses deletionVectors"):
        Lake.load(tmp_path)


def test_files_that_never_came_into_the_table_are_removed_once_it_is_further(tmp_path: Path) -> None:
    add(tmp_path, span(0, 10))
    crashed = write(tmp_path, span(10, 20), run="b" * 12)
    under_way = write(tmp_path, span(20, 30), run="c" * 12)
    (tmp_path / "theirs.parquet").write_bytes(b"")
    assert Lake.load(tmp_path).remove_leftovers(SOURCE) == []
    lake = add(tmp_path, span(10, 20), run="d" * 12)
    assert lake.remove_leftovers(SOURCE) == [crashed.path]
    assert {under_way.path, "theirs.parquet"} <= set(names(tmp_path))


def test_a_full_vacuum_finds_what_was_left_over_too(tmp_path: Path) -> None:
    add(tmp_path, span(0, 10))
    crashed = write(tmp_path, span(10, 20), run="b" * 12)
    table = DeltaTable(tmp_path)
    assert table.vacuum(retention_hours=0, enforce_retention_duration=False, full=True) == [crashed.path]


def test_files_of_an_earlier_version_are_no_leftovers(tmp_path: Path) -> None:
    add(tmp_path, span(0, 10))
    lake = add(tmp_path, span(10, 20), run="b" * 12)
    DeltaTable(tmp_path).optimize.compact()
    assert Lake.load(tmp_path).remove_leftovers(SOURCE) == []
    assert lake.remove_leftovers(SOURCE) == []
    assert DeltaTable(tmp_path, version=1).to_pyarrow_table().num_rows == 20


def test_what_is_older_than_the_history_is_left_to_vacuum(tmp_path: Path) -> None:
    """Its run may have been committed, and its rows be in other files since."""
    add(tmp_path, span(0, 10))
    add(tmp_path, span(10, 20), run="b" * 12)
    before = set(names(tmp_path))
    table = DeltaTable(tmp_path)
    table.optimize.compact()
    long_ago = time.time() - 40 * 24 * 3600
    for path in (*tmp_path.glob("penstock-*.parquet"), *tmp_path.glob("_delta_log/*.json")):
        os.utime(path, (long_ago, long_ago))
    table = DeltaTable(tmp_path)
    table.create_checkpoint()
    table.cleanup_metadata()
    crashed = write(tmp_path, span(15, 20), run="c" * 12)

    lake = add(tmp_path, span(20, 30), run="d" * 12)

    assert lake.runs() == {"d" * 12}, "the history of the first runs is gone"
    assert lake.remove_leftovers(SOURCE) == [crashed.path]
    assert before <= set(names(tmp_path))


def test_rows_that_others_have_taken_from_the_table_are_noticed(tmp_path: Path) -> None:
    add(tmp_path, span(0, 10), span(0, 5, 1))
    lake = add(tmp_path, span(10, 30), run="b" * 12)
    lake.check_whole(SOURCE)
    DeltaTable(tmp_path).optimize.compact()
    Lake.load(tmp_path).check_whole(SOURCE)

    DeltaTable(tmp_path).delete("partition = 0 AND offset >= 25")
    with pytest.raises(LakeError, match="has 30 rows, but 35 were archived"):
        Lake.load(tmp_path).check_whole(SOURCE)

    add(tmp_path, span(30, 40), run="c" * 12)
    with pytest.raises(LakeError, match="has 40 rows, but 45 were archived"):
        Lake.load(tmp_path).check_whole(SOURCE)

    made = write(tmp_path, span(40, 50), run="d" * 12)
    Lake.load(tmp_path).commit(SOURCE, [span(40, 50)], [made], run="d" * 12, recount=True).check_whole(SOURCE)


def test_a_version_that_was_restored_is_noticed(tmp_path: Path) -> None:
    add(tmp_path, span(0, 10))
    add(tmp_path, span(10, 30), run="b" * 12)
    DeltaTable(tmp_path).restore(0)
    lake = Lake.load(tmp_path)
    assert lake.ends(SOURCE) == {0: 30}, "what was said about that stays"
    with pytest.raises(LakeError, match="has 10 rows, but 30 were archived"):
        lake.check_whole(SOURCE)


@pytest.mark.parametrize(
    ("path", "message"),
    [("", "has no name"), ("{}/file", "cannot be opened as a Delta table"), ("foo://x/y", "cannot be opened")],
)
def test_what_can_be_no_table_is_told_in_a_sentence(tmp_path: Path, path: str, message: str) -> None:
    (tmp_path / "file").write_text("nothing of use")
    with pytest.raises(LakeError, match=message):
        open_filesystem(Lake.load(path.format(tmp_path)).path)


def test_a_folder_is_the_same_for_all_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert locate("lake/orders/") == str(tmp_path / "lake" / "orders")
    assert locate("s3://bucket/lake/") == "s3://bucket/lake"
    filesystem, base = open_filesystem(locate("lake"))
    assert base == str(tmp_path / "lake")
    assert list_names(filesystem, base) == []


def test_files_go_where_a_uri_says(tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/lake"
    filesystem, base = open_filesystem(locate(uri))
    assert base == f"{tmp_path}/lake"
    name = FileName(0, 0, 10, RUN, 0)
    made = write_file(filesystem, base, name, span(0, 10), [rows(range(10))])
    assert made is not None
    assert Lake.load(uri).commit(SOURCE, [span(0, 10)], [made], run=RUN).ends(SOURCE) == {0: 10}
    assert DeltaTable(f"{tmp_path}/lake").to_pyarrow_table().num_rows == 10
