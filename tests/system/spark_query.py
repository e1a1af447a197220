"""A streaming query as a program of its own, which dies where it is told to: it reads a topic, and appends each batch
to a Delta table once, by the number of the batch."""

import json
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql.functions import udf

from penstock.spark import session
from tests.spark.conftest import CONF, MASTER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def die(group: int) -> None:
    """The driver and its JVM at once, as if the machine had lost its power."""
    os.killpg(group, signal.SIGKILL)


def append_once(path: str, rows: "DataFrame", number: int) -> None:
    """A batch that is done again is in the table already."""
    from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

    if DeltaTable.is_deltatable(path):
        last = DeltaTable(path).transaction_version("query")
        if last is not None and last >= number:
            return
    done = CommitProperties(app_transactions=[Transaction("query", number)])
    write_deltalake(path, rows.select("partition", "offset", "value").toArrow(), mode="append", commit_properties=done)


def main(arguments: Sequence[str]) -> None:
    """Dies at a step of a batch (`before` the write, in a `task` of it, `after` it), `never`, or ends at the `end`."""
    options, table, checkpoint, step, number = arguments
    spark = session(MASTER, **CONF)
    group = os.getpgid(0)

    def each(rows: "DataFrame", batch: int) -> None:
        at = step if batch == int(number) else ""
        if at == "before":
            die(group)
        if at == "task":

            def die_at_last(offset: int) -> int:
                if offset % 10 == 9:
                    die(group)
                return offset

            rows = rows.withColumn("offset", udf(die_at_last, "long", useArrow=False)("offset"))
        append_once(table, rows, batch)
        if at == "after":
            die(group)

    rows = spark.readStream.format("penstock").options(**json.loads(options)).load()
    writer = rows.writeStream.option("checkpointLocation", checkpoint).foreachBatch(each)
    if step == "end":
        writer = writer.trigger(availableNow=True)
    writer.start().awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1:])
