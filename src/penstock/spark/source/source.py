"""`PenstockDataSource` is the format `penstock` for Spark: `spark.read`, `spark.readStream`, and the writers of `sink`.

These classes only translate Spark's calls; other modules decide.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from penstock.spark.link import connect
from penstock.spark.offsets import Offsets
from penstock.spark.options import OptionsError, SourceOptions, read_options
from penstock.spark.planning import Range
from penstock.spark.schema import check_schema, schema_text
from penstock.spark.sentences import sentence_first
from penstock.spark.sink.options import read_sink_options
from penstock.spark.sink.sink import BatchWriter, StreamWriter
from penstock.spark.source.driver import Driver
from penstock.spark.source.metrics import BEHIND, behind_by_topic
from penstock.spark.source.reader import read_range

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class PenstockDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "penstock"

    @sentence_first()
    def schema(self) -> str:
        return schema_text(includes_headers=read_options(self.options).includes_headers)

    @sentence_first()
    def reader(self, schema: "StructType") -> "BatchReader":
        return BatchReader(read_options(self.options, "batch"), schema)

    def streamReader(self, schema: "StructType") -> "StreamReader | RefusedReader":  # noqa: N802
        try:
            return StreamReader(read_options(self.options, "streaming"), schema)
        except OptionsError as error:
            return RefusedReader(error)

    @sentence_first()
    def writer(self, schema: "StructType", overwrite: bool) -> BatchWriter:
        return BatchWriter(read_sink_options(self.options), schema, overwrite=overwrite)

    @sentence_first()
    def streamWriter(self, schema: "StructType", overwrite: bool) -> StreamWriter:  # noqa: N802
        return StreamWriter(read_sink_options(self.options), schema)


@dataclass(repr=False)
class RangePartition(InputPartition):
    """What a task gets from the driver besides the options."""

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
        # For a batch without partitions Spark reads one that is empty.
        if not isinstance(partition, RangePartition):
            return
        from pyspark.sql.pandas.types import to_arrow_schema

        with sentence_first():
            yield from read_range(self._options, partition.range, to_arrow_schema(self._schema, timezone="UTC"))


# No `pushFilters`: in Spark 4.3 a filter that was pushed leaks into later uses of the DataFrame.
class BatchReader(_Task, DataSourceReader):
    """Reads what the logs have when the query is planned."""

    @sentence_first()
    def partitions(self) -> Sequence[InputPartition]:
        driver = Driver(self._options, connect(self._options.settings))
        return [RangePartition(each) for each in driver.plan_batch()]


class StreamReader(_Task, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream. Spark makes one reader in a process of the driver for everything but `read`, and copies of
    another one for the tasks, which do not see what is set here."""

    def __init__(self, options: SourceOptions, schema: "StructType") -> None:
        super().__init__(options, schema)
        self._driver: Driver | None = None

    @sentence_first()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._open().initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Says only whether there is a limit; the options have its value."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    @sentence_first()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._open().aim()

    @sentence_first()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        is_limited = not isinstance(limit, ReadAllAvailable)
        return self._open().latest(Offsets.from_json(start), is_limited=is_limited).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Spark shows it in the query's progress, where metrics of a source cannot be: it has none for Python's."""
        driver = self._open()
        if driver.seen is None or driver.end is None:
            return None
        return driver.seen.to_json() | {BEHIND: behind_by_topic(driver.end, driver.seen)}

    @sentence_first()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        ranges = self._open().plan(Offsets.from_json(start), Offsets.from_json(end))
        return [RangePartition(each) for each in ranges]

    def _open(self) -> Driver:
        if self._driver is None:
            self._driver = Driver(self._options, connect(self._options.settings))
        return self._driver


class RefusedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stands for a stream whose options are wrong, and raises their error at Spark's first call. Spark 4.3 reports an
    UnboundLocalError of its own in place of one that is raised before there is a reader."""

    def __init__(self, error: OptionsError) -> None:
        self._error = error

    @sentence_first()
    def _refuse(self) -> NoReturn:
        raise self._error

    def initialOffset(self) -> NoReturn:  # noqa: N802
        self._refuse()

    def getDefaultReadLimit(self) -> NoReturn:  # noqa: N802
        self._refuse()

    def prepareForTriggerAvailableNow(self) -> NoReturn:  # noqa: N802
        self._refuse()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> NoReturn:  # noqa: N802
        self._refuse()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> NoReturn:
        self._refuse()

    def read(self, partition: InputPartition) -> NoReturn:
        self._refuse()
