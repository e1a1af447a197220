"""The format `penstock` as Spark calls it: `spark.read` and `spark.readStream`, and the writers of `sink`.

Everything that decides is elsewhere: here it is only put into Spark's words.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from penstock.spark.connecting import connect
from penstock.spark.driver import Driver
from penstock.spark.offsets import Offsets
from penstock.spark.options import SourceOptions, read_options
from penstock.spark.planning import Range
from penstock.spark.reading import read_range
from penstock.spark.schema import check_schema, schema_text
from penstock.spark.sink import BatchWriter, StreamWriter
from penstock.spark.sink_options import read_sink_options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class PenstockDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> str:
        return schema_text(includes_headers=read_options(self.options).includes_headers)

    def reader(self, schema: "StructType") -> "BatchReader":
        return BatchReader(read_options(self.options, "batch"), schema)

    def streamReader(self, schema: "StructType") -> "StreamReader":  # noqa: N802
        return StreamReader(read_options(self.options, "streaming"), schema)

    def writer(self, schema: "StructType", overwrite: bool) -> BatchWriter:
        return BatchWriter(read_sink_options(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> StreamWriter:  # noqa: N802
        return StreamWriter(read_sink_options(self.options), schema)


@dataclass(repr=False)
class RangePartition(InputPartition):
    """What a task is told: it has nothing else of the driver but the options."""

    range: Range

    def __repr__(self) -> str:
        return str(self.range)


class _Task:
    """The half of a reader that runs in tasks."""

    def __init__(self, options: SourceOptions, schema: "StructType") -> None:
        check_schema(schema)
        self._options = options
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        # Spark has a batch without partitions read one that is empty.
        if not isinstance(partition, RangePartition):
            return iter(())
        from pyspark.sql.pandas.types import to_arrow_schema

        return read_range(self._options, partition.range, to_arrow_schema(self._schema, timezone="UTC"))


# No `pushFilters`: in Spark 4.3 a filter that was pushed leaks into later uses of the DataFrame.
class BatchReader(_Task, DataSourceReader):
    """What is there when the query is planned."""

    def partitions(self) -> Sequence[InputPartition]:
        driver = Driver(self._options, connect(self._options.settings))
        return [RangePartition(each) for each in driver.plan_batch()]


class StreamReader(_Task, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark makes one in a process of the driver for everything but `read`, and copies of another one for the tasks:
    what is set here is not seen there."""

    def __init__(self, options: SourceOptions, schema: "StructType") -> None:
        super().__init__(options, schema)
        self._driver: Driver | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._open().initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Only tells whether there is a limit at all: the options have it."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._open().aim()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        is_limited = not isinstance(limit, ReadAllAvailable)
        return self._open().latest(Offsets.from_json(start), is_limited=is_limited).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        seen = self._open().seen
        return None if seen is None else seen.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        ranges = self._open().plan(Offsets.from_json(start), Offsets.from_json(end))
        return [RangePartition(each) for each in ranges]

    def _open(self) -> Driver:
        if self._driver is None:
            self._driver = Driver(self._options, connect(self._options.settings))
        return self._driver
