"""Which tests of Spark belong to `make test`: one or two of each part. All of them take minutes: `make test-spark`."""

import os
from typing import Final

import pytest

ALL: Final = "PENSTOCK_TEST_SPARK"
"""Set, it has all of them run."""

SHORT: Final = {
    "test_a_batch_has_the_schema_and_the_rows_of_sparks_kafka_source",
    "test_a_filter_does_not_leak_into_later_uses",
    "test_a_first_batch_that_fails_with_starting_offsets_latest_loses_nothing",
    "test_a_driver_that_died_at_any_step_goes_on_without_a_row_lost_or_doubled",
    "test_a_data_frame_is_written",
    "test_a_stream_is_written_and_goes_on_from_its_checkpoint",
    "test_a_topic_goes_into_a_table_and_what_came_since_is_added_by_the_next_run",
    "test_a_crash_between_the_files_and_the_commit_leaves_no_trace_in_the_table",
    "test_from_topic_to_lake_to_topic_counts_order_and_checksums_are_the_same",
    "test_rows_come_from_the_lake_below_the_cut_and_from_the_log_above_it",
    "test_messages_and_bytes_are_counted_by_topic_partition_hour_and_key",
}

# They start Spark in a process of their own.
_APART: Final = (
    "tests/cli/pipeline/test_quiet.py::test_a_pipeline_prints_nothing_on_standard_error_but_its_own",
    "tests/spark/test_java.py::test_where_there_is_no_java_one_is_installed_and_spark_runs_on_it",
    "tests/spark/source/test_source.py::test_transform_with_state_needs_protobuf_and_pandas",
    "tests/system/test_spark_kills.py",
    "tests/system/test_spark_rides_along.py",
    "tests/docs/test_guides.py::test_the_guides_to_spark_work_one_after_the_other_against_one_broker",
)


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that start Spark, but for the short ones, unless all are asked for."""
    if os.environ.get(ALL):
        return
    left_out = [item for item in items if _starts_spark(item) and getattr(item, "originalname", "") not in SHORT]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


def _starts_spark(item: pytest.Item) -> bool:
    # Those of a cluster have a command of their own, and say so themselves.
    if item.nodeid.startswith("tests/system/test_spark_cluster.py"):
        return False
    return "spark" in getattr(item, "fixturenames", ()) or item.nodeid.startswith(_APART)
