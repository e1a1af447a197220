"""Reads metadata entries that were written as JSON, before a cluster could have several brokers. None are written."""

from typing import Any, Final

import msgspec

from penstock.machines.cluster_records import (
    DamagedRecordsError,
    Entry,
    Record,
)

NO_INDEX: Final = 0
"""These entries say neither their index nor the epoch of their controller."""


def is_json(entry: bytes) -> bool:
    return entry.startswith(b'{"penstock":')


def decode(entry: bytes) -> Entry:
    try:
        found = _decoder.decode(entry)
        return Entry(found.penstock, 0, NO_INDEX, [_record(fields) for fields in found.records])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, KeyError) as error:
        raise DamagedRecordsError(
            f"an entry of the metadata log is damaged ({error!r}); restore the metadata store from a backup"
        ) from None


class _Document(msgspec.Struct):
    penstock: str
    records: list[dict[str, Any]]


_decoder: Final = msgspec.json.Decoder(_Document)


def _record(fields: dict[str, Any]) -> Record:
    """The same in the form of today. The fields are in the order in which they were written."""
    kind = f"{fields.pop('type')}:{fields.pop('version')}"
    match kind:
        case "partition:1":
            topic_id = fields.pop("topic_id")
            found: Any = ["partitions-changed:1", topic_id, [[fields.pop("partition"), *fields.values()]]]
        case "broker:1":
            # The broker registers again before its address is asked for.
            found = [kind, fields["broker_id"], fields["broker_epoch"], {}, fields["rack"], "", ""]
        case _:
            found = [kind, *fields.values()]
    record: Record = msgspec.convert(found, Record)
    return record
