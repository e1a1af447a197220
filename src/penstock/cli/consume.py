"""`penstock consume`: the messages of a topic on standard output."""

import sys
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING

import click

from penstock.cli.formatting import DEFAULT_FORMAT, TOKENS, compile_format, json_lines
from penstock.cli.options import bootstrap_option, topic_argument
from penstock.cli.positions import Kind, Position, PositionType

if TYPE_CHECKING:
    from penstock.cli.formatting import Render
    from penstock.cli.progress import Progress
    from penstock.client.cluster import Cluster
    from penstock.client.fetching import Fetched
    from penstock.client.metadata import TopicPartition

PARTITION_MAX_BYTES = 4 * 1024 * 1024
MAX_BYTES = 16 * 1024 * 1024
# How long a broker waits for news. A follower that it has nothing for costs a request in so much time.
FOLLOW_WAIT_MS = 5_000
WAIT_MS = 500
WRITE_BYTES = 256 * 1024

_TOKENS = "\b\nTokens of a format:\n" + "\n".join(f"  {token:<11} {meaning}" for token, meaning in TOKENS.items())


@click.command(epilog=_TOKENS)
@topic_argument
@click.option(
    "--partition",
    "-p",
    "partitions",
    type=click.IntRange(min=0),
    metavar="N",
    multiple=True,
    help="Only this one; may be given several times.",
)
@click.option(
    "--offset",
    "-o",
    "position",
    type=PositionType(),
    default="beginning",
    show_default=True,
    metavar="beginning|end|N|-N|@TIME|-1h",
    help="Where to begin in each partition: -N is the last N messages, @TIME is milliseconds since 1970 or a date of "
    "ISO 8601, -1h is what came in the last hour (d, h, m, s, ms).",
)
@click.option("--count", "-c", type=click.IntRange(min=1), metavar="N", help="End after so many messages.")
@click.option("--follow", "-f", is_flag=True, help="Wait for more when all is read, until Ctrl-C.")
@click.option("--format", "-F", "form", metavar="FORMAT", help="How to print a message, as kcat does; see below.")
@click.option("--output", "-O", type=click.Choice(["text", "json"]), default="text", help="JSON is an object a line.")
@bootstrap_option
def consume(
    *,
    topic: str,
    partitions: Sequence[int],
    position: Position,
    count: int | None,
    follow: bool,
    form: str | None,
    output: str,
    bootstrap: str,
) -> None:
    """Print the messages of a topic.

    It ends where each partition ended when it began, or goes on with --follow. Within a partition messages come in
    order; which partition comes first is left open.
    """
    from penstock.cli.running import run

    if form is not None and output == "json":
        raise click.UsageError("--format and --output json exclude each other")
    try:
        render = json_lines(topic) if output == "json" else compile_format(form or DEFAULT_FORMAT, topic)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--format") from None
    reading = Reading(topic, partitions, position, render, count=count, follow=follow)
    try:
        run(bootstrap, reading.run)
    except KeyboardInterrupt:
        if not follow:
            raise
    finally:
        reading.flush()


class Reading:
    """One run of the command."""

    def __init__(
        self,
        topic: str,
        partitions: Sequence[int],
        position: Position,
        render: "Render",
        *,
        count: int | None,
        follow: bool,
        sink: IO[bytes] | None = None,
    ) -> None:
        self._topic = topic
        self._wanted = partitions
        self._position = position
        self._render = render
        self._left = count
        self._follow = follow
        self._sink = sink or sys.stdout.buffer
        self._pieces: list[bytes] = []
        self._pending_bytes = 0
        # What is still to be read of each partition: from where, and up to where if there is an end.
        self._offsets: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}

    async def run(self, cluster: "Cluster") -> None:
        from penstock.cli.progress import Progress

        await self._begin(cluster)
        total = sum(self._ends[key] - self._offsets[key] for key in self._offsets) if not self._follow else None
        # On a terminal the messages themselves show that it goes on.
        wanted = not self._follow and not sys.stdout.isatty()
        with Progress(f"reading {self._topic}", total=total, wanted=wanted) as progress:
            while self._offsets and self._left != 0:
                await self._fetch(cluster, progress)
                self.flush()

    def flush(self) -> None:
        if self._pieces:
            pieces, self._pieces, self._pending_bytes = self._pieces, [], 0
            self._sink.write(b"".join(pieces))
            self._sink.flush()

    async def _begin(self, cluster: "Cluster") -> None:
        from penstock.cli.partition_ranges import locate, partition_ranges
        from penstock.client.metadata import TopicPartition

        topic = await cluster.topic(self._topic)
        numbers = sorted(set(self._wanted)) or range(len(topic.partitions))
        ranges = await partition_ranges(
            cluster, [TopicPartition(topic.name, topic.partition(number).index) for number in numbers]
        )
        for key, start in (await locate(cluster, self._position, ranges)).items():
            first, end = ranges[key].start, ranges[key].stop
            if self._position.kind is Kind.OFFSET and start != self._position.value:
                click.echo(f"{key} has offsets from {first} to {end}: reading from {start}", err=True)
            if self._follow or start < end:
                self._offsets[key] = start
                self._ends[key] = end

    async def _fetch(self, cluster: "Cluster", progress: "Progress") -> None:
        from penstock.client.errors import BrokerError, ClientError
        from penstock.client.fetching import fetch_many
        from penstock.protocol.error_codes import ErrorCode

        results = await fetch_many(
            cluster,
            self._offsets,
            max_bytes=MAX_BYTES,
            partition_max_bytes=PARTITION_MAX_BYTES,
            max_wait_ms=FOLLOW_WAIT_MS if self._follow else WAIT_MS,
        )
        came = False
        for key, fetched in results.items():
            if isinstance(fetched, BrokerError) and fetched.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                await self._catch_up(cluster, key)
                came = True
            elif isinstance(fetched, ClientError):
                raise fetched
            elif fetched.batches and self._left != 0:
                came = True
                count = self._print(key, fetched)
                progress.advance(fetched.next_offset - fetched.offset, count)
                self._move(key, fetched.next_offset)
        if not came and not self._follow:
            # What is left are offsets without a record, which compaction or a transaction has taken.
            self._offsets.clear()

    def _move(self, key: "TopicPartition", offset: int) -> None:
        # To the end of the row: the next answer begins with those that this one had no room for.
        del self._offsets[key]
        if self._follow or offset < self._ends[key]:
            self._offsets[key] = offset

    async def _catch_up(self, cluster: "Cluster", key: "TopicPartition") -> None:
        """Retention was faster than we are, or the log was truncated."""
        from penstock.cli.partition_ranges import partition_ranges

        left = (await partition_ranges(cluster, [key]))[key]
        offset = min(max(self._offsets[key], left.start), left.stop)
        click.echo(f"{key}: offset {self._offsets[key]} is gone, going on at {offset}", err=True)
        self._ends[key] = min(self._ends[key], left.stop)
        self._move(key, offset)

    def _print(self, key: "TopicPartition", fetched: "Fetched") -> int:
        render, pieces, partition = self._render, self._pieces, key.partition
        end = None if self._follow else self._ends[key]
        count = 0
        for record in fetched.records():
            if end is not None and record.offset >= end:
                break
            piece = render(partition, record)
            pieces.append(piece)
            self._pending_bytes += len(piece)
            count += 1
            if self._left is not None:
                self._left -= 1
                if self._left == 0:
                    break
            if self._pending_bytes >= WRITE_BYTES:
                self.flush()
                pieces = self._pieces
        return count
