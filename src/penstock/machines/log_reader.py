"""Reads the metadata log in its order and notices an entry that is not the one that belongs there."""

from penstock.machines import json_records
from penstock.machines.cluster_records import DamagedRecordsError, Entry, Record, decode


class LogReader:
    """`index` is that of the last entry read, `controller_epoch` the newest seen. An error changes neither."""

    def __init__(self) -> None:
        self.index = 0
        self.controller_epoch = 0

    def read_snapshot(self, index: int, data: bytes) -> list[Record]:
        """The records of a snapshot as of an index; reading goes on after it."""
        snapshot = _decode(data)
        if snapshot.index not in (index, json_records.NO_INDEX):
            raise DamagedRecordsError(
                f"the snapshot of the metadata log at index {index} is one of index {snapshot.index}; restore the "
                "metadata store from a backup"
            )
        self.index, self.controller_epoch = index, max(self.controller_epoch, snapshot.controller_epoch)
        return snapshot.records

    def read(self, index: int, data: bytes) -> list[Record]:
        """The records of the entry that the store has at an index."""
        expected = self.index + 1
        entry = _decode(data)
        if index != expected or entry.index not in (expected, json_records.NO_INDEX):
            raise DamagedRecordsError(
                f"where entry {expected} of the metadata log is expected the store has entry {index}, which was "
                f"written as entry {entry.index}; restore the metadata store from a backup"
            )
        if entry.controller_epoch < self.controller_epoch:
            raise DamagedRecordsError(
                f"entry {index} of the metadata log is of controller epoch {entry.controller_epoch}, after entries of "
                f"controller epoch {self.controller_epoch}: the metadata store let a controller write that had been "
                "replaced; restore the metadata store from a backup"
            )
        self.index, self.controller_epoch = index, entry.controller_epoch
        return entry.records


def _decode(data: bytes) -> Entry:
    return json_records.decode(data) if json_records.is_json(data) else decode(data)
