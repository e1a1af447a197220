"""The shim is a library of our own between a broker and the C library: its disk is full, fails to sync or is slow, and
its wall clock jumps, when this process says so. Production knows nothing of it.

Numbers in a file say what is wrong; the broker's process maps it, so that what is written here holds at once, and still
holds after a restart.
"""

import subprocess
from pathlib import Path
from struct import Struct
from typing import Final

SOURCE: Final = Path(__file__).with_name("shim.c")
_NUMBER: Final = Struct("=q")
# As in `struct numbers` of the source.
_FIELDS: Final = (
    "is_full",
    "failing_syncs",
    "sync_delay_ms",
    "clock_offset_ms",
    "refused_writes",
    "failed_syncs",
    "delayed_syncs",
    "moved_clock_reads",
)
_FAULTS: Final = _FIELDS[:4]


class ShimError(Exception):
    """The C compiler says why."""


def build(folder: Path) -> Path:
    """Compile it, unless that is done and the source is older."""
    library = folder / "shim.so"
    if library.exists() and library.stat().st_mtime > SOURCE.stat().st_mtime:
        return library
    folder.mkdir(parents=True, exist_ok=True)
    command = ["cc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise ShimError("cc is not installed: `tools/setup_debian.sh cc` does it") from None
    if done.returncode:
        raise ShimError(f"{' '.join(command)}: {done.stderr.strip()}")
    return library


class Shim:
    """Of one broker: `folder` is its disk. What is set stays until `heal`, whatever the broker does."""

    def __init__(self, library: Path, control: Path, folder: Path) -> None:
        control.write_bytes(bytes(_NUMBER.size * len(_FIELDS)))
        self._control = control
        self.environment = {
            "LD_PRELOAD": str(library),
            "CHAOS_SHIM": str(control),
            "CHAOS_SHIM_FOLDER": str(folder.resolve()),
        }

    def set(self, field: str, value: int) -> None:
        with self._control.open("r+b") as file:
            file.seek(self._place(field))
            file.write(_NUMBER.pack(value))

    def get(self, field: str) -> int:
        with self._control.open("rb") as file:
            file.seek(self._place(field))
            (value,) = _NUMBER.unpack(file.read(_NUMBER.size))
        return int(value)

    def heal(self) -> None:
        for field in _FAULTS:
            self.set(field, 0)

    def _place(self, field: str) -> int:
        return _FIELDS.index(field) * _NUMBER.size
