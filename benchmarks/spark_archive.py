"""Rows a second that `penstock pipeline archive` writes, beside Spark's own Parquet write from the same source.

python -m benchmarks.spark_archive [MESSAGES]
"""

import asyncio
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, cast

from benchmarks.report import Row, Table, Target
from benchmarks.systems import Penstock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS: Final = 3
MESSAGES: Final = 500_000
SIZE: Final = 1024
PARTITIONS: Final = 2
LEAST_RATIO: Final = 3.0
CODECS: Final = ("snappy", "zstd")
OURS: Final = "penstock pipeline archive"
THEIRS: Final = "Spark's Parquet write"


def measure(
    spark: "SparkSession", bootstrap: str, topic: str, folder: Path, *, step: Callable[[str], object] = print
) -> Table:
    """A topic that is filled, archived again and again, each time into a new folder; in turns, after one of each to
    warm up."""
    ways = {f"{name}, {codec}": (write, codec) for codec in CODECS for name, write in _WAYS.items()}
    found: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(ROUNDS + 1):
        for name, (write, codec) in ways.items():
            step(f"{name}, {f'round {number} of {ROUNDS}' if number else 'warming up'}")
            target = folder / "archive"
            begun = time.monotonic()
            rows = write(spark, bootstrap, topic, str(target), codec)
            seconds = time.monotonic() - begun
            shutil.rmtree(target)
            if number:
                found[name].append(rows / seconds)
    return make_table(found)


def make_table(found: dict[str, list[float]]) -> Table:
    """Ours in each codec beside Spark's in the same."""
    rows = []
    for codec in CODECS:
        ours, theirs = found[f"{OURS}, {codec}"], found[f"{THEIRS}, {codec}"]
        ratio = statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True))
        target = Target("ratio", LEAST_RATIO, at_most=False)
        rows += [
            Row({"way": f"{OURS}, {codec}", "rows/s": statistics.median(ours), "ratio": ratio}, (target,)),
            Row({"way": f"{THEIRS}, {codec}", "rows/s": statistics.median(theirs), "ratio": 1.0}),
        ]
    return Table(
        title="Archiving",
        how=(
            f"Rows of 1 KB from a topic of {PARTITIONS} partitions into Parquet, on local[2], the broker on the same "
            f"cores; medians of {ROUNDS} rounds in turns. Ours is a whole run: Delta commit, check of the files and "
            "commit of the group. The ratio is taken within each round, to Spark's write in the same codec (zstd at "
            "level 1)."
        ),
        rows=rows,
        raw=dict(found),
    )


def fill(bootstrap: str, topic: str, messages: int = MESSAGES) -> None:
    """Keys of some bytes; values of a kilobyte of JSON, of which a quarter is chance: ids and amounts."""
    import numpy as np
    import pyarrow as pa

    from penstock.client import Producer

    async def send() -> None:
        chance = np.random.default_rng(1)
        async with Producer(bootstrap, profile="throughput") as producer:
            for start in range(0, messages, 10_000):
                count = min(10_000, messages - start)
                ids = chance.bytes(count * 128).hex()
                values = [_order(start + number, ids[number * 256 : (number + 1) * 256]) for number in range(count)]
                keys = [b"%d" % number for number in range(start, start + count)]
                (await producer.send_batch(topic, pa.table({"key": keys, "value": values}))).raise_for_errors()

    asyncio.run(send())


def _order(number: int, chance: str) -> bytes:
    pieces = [chance[place : place + 16] for place in range(64, 256, 16)]
    items = ", ".join(f'{{"sku": "{each[:12]}", "amount": {int(each[12:], 16)}, "currency": "EUR"}}' for each in pieces)
    text = f'{{"order": {number}, "customer": "{chance[:32]}", "session": "{chance[32:64]}", "items": [{items}]}}'
    return text.encode().ljust(SIZE)[:SIZE]


def _archive(spark: "SparkSession", bootstrap: str, topic: str, target: str, codec: str) -> int:
    from penstock.spark import archive

    return archive(spark, topic, target, bootstrap=bootstrap, compression=cast(Any, codec)).rows


def _write_by_spark(spark: "SparkSession", bootstrap: str, topic: str, target: str, codec: str) -> int:
    import pyarrow.parquet as pq

    reader = spark.read.format("penstock").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    writer = reader.option("includeHeaders", "true").load().write.option("compression", codec)
    writer.option("parquet.compression.codec.zstd.level", "1").parquet(target)
    return sum(pq.read_metadata(each).num_rows for each in Path(target).glob("*.parquet"))


_WAYS: Final = {OURS: _archive, THEIRS: _write_by_spark}


def main() -> None:
    from penstock.spark import session

    messages = int(sys.argv[1]) if len(sys.argv) > 1 else MESSAGES
    with TemporaryDirectory() as folder:
        system = Penstock()
        (Path(folder) / "broker").mkdir()
        with system.start(Path(folder) / "broker", tuple(range(os.cpu_count() or 1))) as server:
            bootstrap = f"127.0.0.1:{server.port}"
            system.make_topic(server, "archived", PARTITIONS)
            fill(bootstrap, "archived", messages)
            conf: dict[str, Any] = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
            spark = session("local[2]", **conf)
            table = measure(spark, bootstrap, "archived", Path(folder))
            spark.stop()
    for row in table.rows:
        print(row.values, row.target, "met" if row.is_met else "")
    print(table.raw)


if __name__ == "__main__":
    main()
