"""This data source of Spark reads ranges of a topic from its log, and from the lake what the log no longer has.

`unified` makes the plan and passes it as an option, so that a DataFrame has the same rows however late it is read.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from penstock.spark.lake.files import arrow_schema
from penstock.spark.lake.lake import Lake, Source
from penstock.spark.lake.reader import read_present_rows
from penstock.spark.options import SourceOptions, read_options
from penstock.spark.planning import Range
from penstock.spark.positions import DataLossError
from penstock.spark.schema import schema_text
from penstock.spark.source.reader import read_range

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FORMAT: Final = "penstock-span"


@dataclass(slots=True, frozen=True)
class SpanPlan:
    """What is read, and how."""

    settings: dict[str, str] = field(repr=False)
    source: Source
    lake: str | None
    ranges: tuple[Range, ...]

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "SpanPlan":
        told = json.loads(text)
        ranges = tuple(Range(**each) for each in told["ranges"])
        return cls(told["settings"], Source(**told["source"]), told["lake"], ranges)

    def options(self) -> SourceOptions:
        settings = {f"kafka.{name}": value for name, value in self.settings.items()}
        return read_options({**settings, "subscribe": self.source.topic, "includeHeaders": "true"}, "batch")


def read_span(spark: "SparkSession", plan: SpanPlan) -> "DataFrame":
    if spark not in _registered:
        spark.dataSource.register(SpanDataSource)
        _registered.add(spark)
    return spark.read.format(FORMAT).option("plan", plan.to_json()).load()


def read_anywhere(plan: SpanPlan, wanted: Range) -> "Iterator[pa.RecordBatch]":
    """Read a range from the log, and from the lake what the log no longer has."""
    options, lake, position = plan.options(), plan.lake, wanted.start
    while position < wanted.end:
        try:
            for batch in read_range(options, replace(wanted, start=position), arrow_schema()):
                position = batch.column("offset")[-1].as_py() + 1
                yield batch
            return
        except DataLossError:
            archived = 0 if lake is None else Lake.load(lake).ends(plan.source).get(wanted.partition, 0)
            if lake is None or archived <= position:
                raise
        end = min(archived, wanted.end)
        for table in read_present_rows(lake, wanted.partition, start=position, end=end):
            yield from table.to_batches()
        position = end


# Spark warns when a source is registered again.
_registered: Final["WeakSet[SparkSession]"] = WeakSet()


class SpanDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return schema_text(includes_headers=True)

    def reader(self, schema: "StructType") -> "SpanReader":
        return SpanReader(SpanPlan.from_json(self.options["plan"]))


@dataclass
class SpanPartition(InputPartition):
    range: Range


class SpanReader(DataSourceReader):
    def __init__(self, plan: SpanPlan) -> None:
        self._plan = plan

    def partitions(self) -> Sequence[InputPartition]:
        return [SpanPartition(each) for each in self._plan.ranges]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        # For a reader without partitions Spark reads one that is empty.
        if not isinstance(partition, SpanPartition):
            return iter(())
        return read_anywhere(self._plan, partition.range)
