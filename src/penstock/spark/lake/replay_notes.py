"""`Notes` keeps how far a replay is, in a folder of the table: what was asked for and when, and the next offset of each
partition."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from penstock.spark.lake.lake import list_names, open_filesystem

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

FOLDER: Final = "_replays"
"""In the folder of the table; Delta and Spark do not look into folders that begin with an underscore."""
CALL: Final = "replay.json"
"""The file that says what was asked for, and when the first run began."""


@dataclass(slots=True, frozen=True)
class State:
    """How far a partition is: the next offset of the lake, and the number of rows before it."""

    next_offset: int
    rows: int


class Notes:
    """A folder with what was asked for, and how far each partition is. States without the file `CALL` do not count:
    they are left from a finished replay that was interrupted while it deleted its notes."""

    def __init__(self, filesystem: "FileSystem", folder: str) -> None:
        self._filesystem = filesystem
        self._folder = folder

    @classmethod
    def open(cls, path: str, name: str) -> Self:
        """The notes of the replay of this name, of the table in `path`; they need not exist yet."""
        filesystem, base = open_filesystem(path)
        return cls(filesystem, f"{base}/{FOLDER}/{name}")

    def began_ms(self) -> int | None:
        """When the first run began; None if there was none."""
        told = self._read(CALL)
        return None if told is None else int(told["began_ms"])

    def begin(self, asked: Mapping[str, Any], now_ms: int) -> None:
        self.forget()
        self._write(CALL, {"asked": asked, "began_ms": now_ms})

    def states(self) -> dict[int, State]:
        """The states of the partitions that have begun."""
        numbers = (name.removesuffix(".json") for name in list_names(self._filesystem, self._folder))
        found = {int(each): self.read(int(each)) for each in numbers if each.isdigit()}
        return {number: state for number, state in found.items() if state is not None}

    def read(self, partition: int) -> State | None:
        told = self._read(f"{partition}.json")
        return None if told is None else State(told["next"], told["rows"])

    def write(self, partition: int, state: State) -> None:
        self._write(f"{partition}.json", {"next": state.next_offset, "rows": state.rows})

    def forget(self) -> None:
        names = list_names(self._filesystem, self._folder)
        if CALL in names:
            self._filesystem.delete_file(f"{self._folder}/{CALL}")
        if names:
            self._filesystem.delete_dir(self._folder)

    def _read(self, name: str) -> Any:
        try:
            with self._filesystem.open_input_stream(f"{self._folder}/{name}") as stream:
                return json.loads(stream.read())
        except FileNotFoundError:
            return None

    def _write(self, name: str, told: Mapping[str, Any]) -> None:
        self._filesystem.create_dir(self._folder, recursive=True)
        # A reader at this moment gets the old file or the new one.
        with self._filesystem.open_output_stream(f"{self._folder}/.{name}") as stream:
            stream.write(json.dumps(told).encode())
        self._filesystem.move(f"{self._folder}/.{name}", f"{self._folder}/{name}")
