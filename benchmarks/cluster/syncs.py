"""Counts the syncs of brokers, by a library of our own between them and the C library: those of files, and those of the
whole file system. Each broker has a file of numbers, which outlives its process."""

from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from benchmarks.programs import library

# As in native/syncs.c.
_NUMBERS: Final = Struct("=3q")


class Syncs(NamedTuple):
    files: int
    file_systems: int

    def since(self, before: "Syncs") -> "Syncs":
        return Syncs(self.files - before.files, self.file_systems - before.file_systems)


class SyncCounter:
    """Of one broker, whose processes are started with `environment`."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(_NUMBERS.size))
        self._path = path
        self.environment = {"LD_PRELOAD": str(library("syncs")), "PENSTOCK_BENCH_SYNCS": str(path)}

    def read(self) -> Syncs:
        with_metadata, of_data, of_file_systems = _NUMBERS.unpack(self._path.read_bytes())
        return Syncs(with_metadata + of_data, of_file_systems)
