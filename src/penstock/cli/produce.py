"""`penstock produce`: lines of standard input or of files, each a message."""

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import IO, TYPE_CHECKING

import click

from penstock.cli.formatting import unescape
from penstock.cli.options import NameValue, bootstrap_option, topic_argument
from penstock.cli.output import Size, counted

if TYPE_CHECKING:
    from penstock.cli.gathering import Gatherer
    from penstock.cli.lines import LineFormat
    from penstock.cli.progress import Progress
    from penstock.cli.reading import ChunkReader
    from penstock.client.cluster import Cluster
    from penstock.client.metadata import Topic
    from penstock.client.producing import Acks
    from penstock.protocol.compression import Codec
    from penstock.protocol.records import NewRecord

ACKS = {"0": "NONE", "1": "LEADER", "all": "ALL"}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# How long to wait for more lines before those that are there are sent.
LINGER_SECONDS = 0.005
# How long nobody looks whether those sent have arrived, while no lines come.
IDLE_SECONDS = 0.5
KEYS_REMEMBERED = 10_000


@click.command()
@topic_argument
@click.argument("files", type=click.Path(exists=True, dir_okay=False, allow_dash=True), nargs=-1, metavar="[FILE]...")
@click.option(
    "--key-separator", "-K", metavar="SEP", help=r"What divides a line into key and value, such as ':' or '\t'."
)
@click.option("--header", "-H", "headers", type=NameValue(), multiple=True, help="A header of every message.")
@click.option(
    "--partition", "-p", type=click.IntRange(min=0), metavar="N", help="Where all go, instead of by key or in turns."
)
@click.option("--acks", type=click.Choice(list(ACKS)), default="all", show_default=True, help="Who has to have it.")
@click.option("--codec", "-z", type=click.Choice(CODECS), default="none", show_default=True, help="Compression.")
@click.option("--null", metavar="TEXT", help="A key or value of just this is sent as null: a tombstone.")
@bootstrap_option
def produce(
    *,
    topic: str,
    files: Sequence[str],
    key_separator: str | None,
    headers: Sequence[tuple[str, str]],
    partition: int | None,
    acks: str,
    codec: str,
    null: str | None,
    bootstrap: str,
) -> None:
    """Send lines as messages.

    Without FILE, or with '-', standard input is read. Messages with equal keys go to one partition, the same that
    Java's client would choose; those without a key go to one partition after the other.
    """
    import os

    from penstock.cli.lines import LineFormat
    from penstock.cli.reading import unbuffered
    from penstock.cli.running import run
    from penstock.client.producing import Acks
    from penstock.protocol.compression import Codec

    if key_separator == "":
        raise click.BadParameter("it may not be empty", param_hint="--key-separator")
    form = LineFormat(
        key_separator=None if key_separator is None else unescape(key_separator),
        null=None if null is None else null.encode(errors="surrogateescape"),
        headers=tuple((name, value.encode(errors="surrogateescape")) for name, value in headers),
    )
    with ExitStack() as opened:
        streams = [
            unbuffered(sys.stdin.buffer) if name == "-" else opened.enter_context(open(name, "rb", buffering=0))
            for name in files or ["-"]
        ]
        total = sum(os.path.getsize(name) for name in files) if files and "-" not in files else None
        production = Production(
            topic, streams, form, partition=partition, acks=Acks[ACKS[acks]], codec=Codec[codec.upper()], total=total
        )
        try:
            run(bootstrap, production.run)
        except OSError as error:
            raise click.ClickException(f"cannot read the input: {error}") from error
        finally:
            production.tell()


class Production:
    """One run of the command."""

    def __init__(
        self,
        topic: str,
        streams: Sequence[IO[bytes]],
        form: "LineFormat",
        *,
        partition: int | None,
        acks: "Acks",
        codec: "Codec",
        total: int | None,
    ) -> None:
        self._topic = topic
        self._streams = streams
        self._form = form
        self._partition = partition
        self._acks = acks
        self._codec = codec
        self._total = total
        self._gatherer: Gatherer | None = None
        self._started = time.monotonic()
        self._sent = 0
        self._sent_bytes = 0

    async def run(self, cluster: "Cluster") -> None:
        from penstock.cli.gathering import Gatherer
        from penstock.cli.progress import Progress
        from penstock.cli.reading import ChunkReader

        choose = chooser(await cluster.topic(self._topic), self._partition)
        self._cluster = cluster
        self._started = time.monotonic()
        self._gatherer = Gatherer(self._send)
        is_interactive = any(stream.isatty() for stream in self._streams)
        with Progress(f"sending to {self._topic}", total=self._total, wanted=not is_interactive) as progress:
            try:
                await self._pump(ChunkReader(self._streams), self._gatherer, choose, progress)
            finally:
                await self._gatherer.cancel()

    def tell(self) -> None:
        """What came of it, also when it was interrupted."""
        if self._gatherer is not None:
            seconds = time.monotonic() - self._started
            done = f"{counted(self._sent, 'message')} ({Size(self._sent_bytes)})"
            click.echo(f"sent {done} to {self._topic} in {seconds:.1f} s", err=True)

    async def _pump(
        self,
        reader: "ChunkReader",
        gatherer: "Gatherer",
        choose: "Callable[[NewRecord], int]",
        progress: "Progress",
    ) -> None:
        from penstock.cli.lines import LineSplitter

        splitter, patience = LineSplitter(), LINGER_SECONDS
        while True:
            try:
                chunk = await reader.next(within=patience)
            except TimeoutError:
                gatherer.flush()
                # Which also tells whether one of those under way has failed.
                await gatherer.room()
                patience = IDLE_SECONDS
                continue
            if chunk is None:
                break
            patience = LINGER_SECONDS
            lines = splitter.feed(chunk) if chunk else splitter.finish()
            for record in self._form.records(lines, time.time_ns() // 1_000_000):
                gatherer.add(choose(record), record)
            progress.advance(len(chunk), len(lines))
            await gatherer.room()
        await gatherer.finish()

    async def _send(self, partition: int, records: "list[NewRecord]") -> None:
        from penstock.cli.gathering import OVERHEAD_BYTES, size_of
        from penstock.client.errors import BrokerError
        from penstock.client.producing import produce as send
        from penstock.protocol.error_codes import ErrorCode

        size = sum(map(size_of, records))
        try:
            await send(self._cluster, self._topic, partition, records, acks=self._acks, codec=self._codec)
        except BrokerError as error:
            if error.code != ErrorCode.MESSAGE_TOO_LARGE or len(records) == 1:
                raise
            assert self._gatherer is not None, "it is what sends"
            # The topic takes less at once than most do.
            self._gatherer.batch_bytes = min(self._gatherer.batch_bytes, size // 2)
            middle = len(records) // 2
            await self._send(partition, records[:middle])
            await self._send(partition, records[middle:])
        else:
            self._sent += len(records)
            self._sent_bytes += size - OVERHEAD_BYTES * len(records)


def chooser(topic: "Topic", partition: int | None) -> "Callable[[NewRecord], int]":
    """Which partition a record goes to: the one wished for, or the one of its key, or one that others go to as well,
    so that batches fill."""
    import random
    from functools import lru_cache

    from penstock.cli.gathering import BATCH_BYTES, size_of
    from penstock.machines.partitioners import Sticky, partition_of_key

    if partition is not None:
        number = topic.partition(partition).index
        return lambda record: number
    count = len(topic.partitions)
    sticky = Sticky(BATCH_BYTES)
    # Keys come again and again, and hashing one costs more than all else that is done with a line.
    of_key = lru_cache(maxsize=KEYS_REMEMBERED)(partition_of_key)
    led = [each.index for each in topic.partitions if each.leader >= 0]
    usable: Sequence[int] = range(count) if len(led) in (0, count) else led

    def choose(record: "NewRecord") -> int:
        if record.key is not None:
            return of_key(record.key, count)
        return sticky.choose(usable, size_of(record), random.random())

    return choose
