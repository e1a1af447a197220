"""`penstock consume` prints the messages of topics on standard output."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from penstock.cli.consume.printing import Printer
from penstock.cli.formatting import DEFAULT_FORMAT, TOKENS, compile_format, json_lines
from penstock.cli.help import examples
from penstock.cli.options import ClientConfig, GroupName, TopicName, client_options
from penstock.cli.positions import Kind, Position, PositionType

if TYPE_CHECKING:
    from penstock.cli.formatting import Render
    from penstock.cli.progress import Progress
    from penstock.client.cluster.cluster import Cluster
    from penstock.client.corruption import PassedOver
    from penstock.client.errors import CorruptBatchError
    from penstock.client.metadata import TopicPartition

PARTITION_MAX_BYTES = 4 * 1024 * 1024
MAX_BYTES = 16 * 1024 * 1024
# How long a broker waits for new messages, and so how often --follow asks while there are none.
FOLLOW_WAIT_MS = 5_000
WAIT_MS = 500

_EXAMPLES = examples(
    "penstock consume orders",
    "penstock consume orders --offset -10 --follow",
    "penstock consume orders --key order-7 --offset -1h",
    "penstock consume orders --offset @2026-01-31 --until @2026-02-01 -O json",
    r"penstock consume orders payments --format '%t %p %o: %k=%s\n'",
    "penstock consume orders --group billing --count 100",
)
_TOKENS = "Tokens of a format:\n" + "\n".join(f"  {token:<11} {meaning}" for token, meaning in TOKENS.items())


@click.command(epilog=f"{_EXAMPLES}\n\n\b\n{_TOKENS}")
@click.argument("topics", type=TopicName(), nargs=-1, required=True, metavar="TOPIC...")
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
    metavar="beginning|end|N|-N|@TIME|-1h",
    help="Where to begin in each partition: -N is the last N messages, @TIME is milliseconds since 1970 or a date of "
    "ISO 8601, -1h is what came in the last hour (d, h, m, s, ms).  [default: beginning]",
)
@click.option(
    "--until",
    type=PositionType(Kind.TIME, Kind.OFFSET),
    metavar="N|@TIME|-1h",
    help="Where to end in each partition: before this offset, or before the first message that is not older.",
)
@click.option("--key", "-k", metavar="KEY", help="Only messages with this key.")
@click.option(
    "--group",
    "-g",
    type=GroupName(),
    metavar="GROUP",
    help="Read as a member of this group: begin where it has committed, or else at --offset, and commit what was "
    "printed.",
)
@click.option("--count", "-c", type=click.IntRange(min=1), metavar="N", help="End after N messages.")
@click.option("--follow", "-f", is_flag=True, help="Wait for more when all is read, until Ctrl-C.")
@click.option(
    "--on-corrupt",
    type=click.Choice(["raise", "skip"]),
    default="raise",
    show_default=True,
    help="At a batch that cannot be read: end with an error, or go on after it and say so.",
)
@click.option("--format", "-F", "form", metavar="FORMAT", help="How to print a message, as kcat does; see below.")
@click.option("--output", "-O", type=click.Choice(["text", "json"]), default="text", help="JSON is an object a line.")
@client_options
def consume(
    *,
    topics: Sequence[str],
    partitions: Sequence[int],
    position: Position | None,
    until: Position | None,
    key: str | None,
    group: str | None,
    count: int | None,
    follow: bool,
    on_corrupt: str,
    form: str | None,
    output: str,
    client: ClientConfig,
) -> None:
    """Print the messages of topics.

    It ends where each partition ended when it began, or goes on with --follow. Within a partition messages come in
    order; which partition comes first is left open.
    """
    from penstock.cli.running import run

    if form is not None and output == "json":
        raise click.UsageError("--format and --output json exclude each other")
    if until is not None and follow:
        raise click.UsageError("--until says where to end, and --follow not to end: leave one of them out")
    printer = Printer(
        {topic: render_of(topic, form, output) for topic in topics},
        key=None if key is None else key.encode(errors="surrogateescape"),
        count=count,
    )
    try:
        if group is None:
            reading = Reading(
                printer,
                partitions,
                position or Position(Kind.BEGINNING),
                until=until,
                follow=follow,
                skips_corrupt=on_corrupt == "skip",
            )
            try:
                run(client, reading.run)
            except click.BadParameter as error:
                if error.param_hint != "-X":
                    raise
                hint = "with --group, -X takes all settings of a consumer"
                raise click.BadParameter(f"{error.message}; {hint}", param_hint="-X") from None
        else:
            from penstock.cli.consume.group_reading import GroupReading
            from penstock.client.settings import ConsumerSettings

            if partitions:
                raise click.UsageError("--partition and --group exclude each other: the group shares partitions out")
            member = {**client, "group.id": group, "on.corrupt": on_corrupt, **reset_setting(position, client)}
            run(member, GroupReading(printer, client=member, follow=follow, until=until).run, kind=ConsumerSettings)
    except KeyboardInterrupt:
        if not follow:
            raise
    finally:
        printer.flush()


def render_of(topic: str, form: str | None, output: str) -> "Render":
    try:
        return json_lines(topic) if output == "json" else compile_format(form or DEFAULT_FORMAT, topic)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--format") from None


def reset_setting(position: Position | None, client: ClientConfig) -> ClientConfig:
    """Where a group begins that has committed nothing, as the setting of a consumer."""
    name = "auto.offset.reset"
    match position:
        case None:
            return {name: client.get(name, "earliest")}
        case Position(Kind.BEGINNING):
            return {name: "earliest"}
        case Position(Kind.END):
            return {name: "latest"}
        case _:
            raise click.UsageError(
                "a group begins where it has committed, or else at --offset beginning or end; penstock group seek "
                "moves it elsewhere"
            )


class Reading:
    """Reads partitions from a position on and prints their messages, without a group."""

    def __init__(
        self,
        printer: Printer,
        partitions: Sequence[int],
        position: Position,
        *,
        follow: bool,
        until: Position | None = None,
        skips_corrupt: bool = False,
    ) -> None:
        self._printer = printer
        self._wanted = partitions
        self._position = position
        self._follow = follow
        self._until = until
        self._skips_corrupt = skips_corrupt
        self._passed_over: PassedOver | None = None
        # What is left to read of each partition: the next offset, and the end if there is one.
        self._offsets: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}

    async def run(self, cluster: "Cluster") -> None:
        from penstock.cli.progress import Progress
        from penstock.client.corruption import PassedOver

        if self._skips_corrupt:
            self._passed_over = PassedOver(report=lambda line: click.echo(line, err=True))
        await self._begin(cluster)
        total = sum(self._ends[key] - self._offsets[key] for key in self._offsets) if not self._follow else None
        # On a terminal the messages themselves show the progress.
        wanted = not self._follow and not sys.stdout.isatty()
        with Progress(f"reading {', '.join(self._printer.topics)}", total=total, wanted=wanted) as progress:
            while self._offsets and not self._printer.is_full:
                await self._fetch(cluster, progress)
                self._printer.flush()

    async def _begin(self, cluster: "Cluster") -> None:
        from penstock.cli.partition_ranges import locate, partition_ranges
        from penstock.client.errors import unwrap
        from penstock.client.metadata import TopicPartition

        topics = unwrap(await cluster.topics(self._printer.topics))
        keys = [
            TopicPartition(topic.name, topic.partition(number).index)
            for topic in topics.values()
            for number in (sorted(set(self._wanted)) or range(len(topic.partitions)))
        ]
        ranges = await partition_ranges(cluster, keys)
        ends = {key: each.stop for key, each in ranges.items()}
        if self._until is not None:
            ends = await locate(cluster, self._until, ranges)
        for key, start in (await locate(cluster, self._position, ranges)).items():
            if self._position.kind is Kind.OFFSET and start != self._position.value:
                there = ranges[key]
                click.echo(f"{key} has offsets from {there.start} to {there.stop}: reading from {start}", err=True)
            if self._follow or start < ends[key]:
                self._offsets[key] = start
                self._ends[key] = ends[key]

    async def _fetch(self, cluster: "Cluster", progress: "Progress") -> None:
        from penstock.client.errors import BrokerError, ClientError, CorruptBatchError
        from penstock.client.plain.fetch import fetch_many
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
            elif isinstance(fetched, CorruptBatchError):
                raise _for_the_command(fetched)
            elif isinstance(fetched, ClientError):
                raise fetched
            elif fetched.batches and not self._printer.is_full:
                came = True
                before, end = self._printer.passed, None if self._follow else self._ends[key]
                try:
                    self._printer.show(key.topic, key.partition, fetched.records(self._passed_over), end)
                except CorruptBatchError as error:
                    raise _for_the_command(error) from error
                progress.advance(fetched.next_offset - fetched.offset, self._printer.passed - before)
                self._move(key, fetched.next_offset)
        if not came and not self._follow:
            # The offsets that are left have no record, because of compaction or a transaction.
            self._offsets.clear()

    def _move(self, key: "TopicPartition", offset: int) -> None:
        # The partition goes to the end of the order: the next answer begins with those that this one had no room for.
        del self._offsets[key]
        if self._follow or offset < self._ends[key]:
            self._offsets[key] = offset

    async def _catch_up(self, cluster: "Cluster", key: "TopicPartition") -> None:
        """Go on within the log as it is now: retention has overtaken us, or the log was truncated."""
        from penstock.cli.partition_ranges import partition_ranges

        left = (await partition_ranges(cluster, [key]))[key]
        offset = min(max(self._offsets[key], left.start), left.stop)
        click.echo(f"{key}: offset {self._offsets[key]} is gone, going on at {offset}", err=True)
        self._ends[key] = min(self._ends[key], left.stop)
        self._move(key, offset)


def _for_the_command(error: "CorruptBatchError") -> "CorruptBatchError":
    """The error with advice for users of the command line."""
    from penstock.client.corruption import corrupt_batch
    from penstock.client.metadata import TopicPartition

    if error.partition is None:
        return error
    key, end = TopicPartition(*error.partition), error.next_offset
    advice = f"give --partition {key.partition} --offset {end} to go on after it, or --on-corrupt skip"
    return corrupt_batch(key, error.offset, end, error.why, advice=advice)
