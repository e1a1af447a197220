"""`penstock message` shows single messages by their place."""

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from penstock.cli.formatting import message_fields
from penstock.cli.help import examples
from penstock.cli.lazy import NearGroup
from penstock.cli.options import ClientConfig, client_options, output_option
from penstock.cli.output import Size, Timestamp, counted, show_fields, show_json

if TYPE_CHECKING:
    from penstock.client.cluster.cluster import Cluster
    from penstock.protocol.batch import BatchHeader
    from penstock.protocol.records import Record

_PLACE = re.compile(r"(.+)-(\d+)@(\d+)", re.ASCII)


class Place(NamedTuple):
    topic: str
    partition: int
    offset: int


def parse_place(text: str) -> Place:
    """Parse `TOPIC-PARTITION@OFFSET`; the name of a topic may itself have dashes."""
    match = _PLACE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not of the form TOPIC-PARTITION@OFFSET, such as orders-0@42")
    return Place(match[1], int(match[2]), int(match[3]))


class PlaceType(click.ParamType[Place, Any]):
    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Place:
        try:
            return value if isinstance(value, Place) else parse_place(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Found(NamedTuple):
    """A message and the header of the batch that it lies in."""

    record: "Record"
    batch: "BatchHeader"


@click.group(cls=NearGroup)
def message() -> None:
    """Look at single messages."""


@message.command(
    epilog=examples("penstock message get orders-0@42", "penstock message get orders-0@42 -O json | jq -r .value")
)
@click.argument("place", type=PlaceType(), metavar="TOPIC-PARTITION@OFFSET")
@output_option
@client_options
def get(place: Place, output: str, client: ClientConfig) -> None:
    """Show one message with all that belongs to it.

    Its checksum is that of the batch in which it lies, which has been checked.
    """
    from penstock.cli.running import run

    found = run(client, lambda cluster: find(cluster, place))
    if output == "json":
        show_json(
            message_fields(place.topic, place.partition, found.record)
            | {"size": size_of(found.record), "crc": f"{found.batch.crc:08x}", "batch": batch_fields(found.batch)}
        )
        return
    record, batch = found
    show_fields(
        {
            "topic": place.topic,
            "partition": place.partition,
            "offset": record.offset,
            "timestamp": Timestamp(record.timestamp),
            "key": record.key,
            "value": record.value,
            "size": Size(size_of(record)),
            "crc": f"{batch.crc:08x}",
            "batch": f"offsets {batch.base_offset} to {batch.last_offset}, {counted(batch.record_count, 'record')}, "
            f"{Size(batch.size)}, {batch.codec.name.lower()}",
            **{f"header {name}": value for name, value in record.headers},
        }
    )


async def find(cluster: "Cluster", place: Place) -> Found:
    from penstock.client.consumer.lookup import compacted_away, find_batch
    from penstock.client.corruption import corrupt_batch
    from penstock.client.message import MessageId
    from penstock.protocol.batch import verify
    from penstock.protocol.errors import DecodeError
    from penstock.protocol.records import iterate

    id = MessageId(*place)
    header, view = await find_batch(cluster, id)
    try:
        verify(header, view)
        # No record of a batch is shown if any of them is broken.
        found = [each for each in iterate(view) if each.offset == place.offset]
    except DecodeError as error:
        advice = f"none of its messages can be shown; those from offset {header.next_offset} on are in other batches"
        raise corrupt_batch(id.topic_partition, header.base_offset, header.next_offset, error, advice=advice) from error
    if not found:
        raise compacted_away(id)
    return Found(found[0], header)


def size_of(record: "Record") -> int:
    """Bytes of key, value and headers."""
    headers = sum(len(name.encode()) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


def batch_fields(header: "BatchHeader") -> dict[str, object]:
    return {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "size": header.size,
        "codec": header.codec.name.lower(),
        "leader_epoch": header.leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
    }
