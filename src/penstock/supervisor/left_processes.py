"""A supervisor writes down which processes it has started, so that the next one finds those that outlived it.

<data folder>/processes     JSON: broker, pid and birth of each process, replaced as a whole
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

FILE_NAME: Final = "processes"
STOP_SECONDS: Final = 30.0
"""How long a broker may take to stop in order before it is killed."""
_LOOK_SECONDS: Final = 0.05


@dataclass(slots=True, frozen=True)
class LeftProcess:
    """A process of a supervisor. Numbers of processes are used again, so that only the birth tells whose it is."""

    node_id: int
    pid: int
    birth: str

    @property
    def is_alive(self) -> bool:
        return birth_of(self.pid) == self.birth


def birth_of(pid: int) -> str | None:
    """What tells a process from all others that ever had its number; None if there is none of that number."""
    if sys.platform == "linux":
        try:
            text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
            boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        except OSError:
            return None
        # The name of the program stands in parentheses, and may have spaces and parentheses of its own.
        fields = text.rpartition(")")[2].split()
        state, start_ticks = fields[0], fields[19]
        return None if state in "ZX" else f"{boot}/{start_ticks}"
    told = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return told.stdout.strip() or None


def write_down(folder: str, processes: Iterable[LeftProcess]) -> None:
    """Replace what the file says. It need not survive the machine, since the processes do not."""
    path = os.path.join(folder, FILE_NAME)
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump([asdict(each) for each in processes], file)
    os.replace(f"{path}.new", path)


def read_left(folder: str) -> list[LeftProcess]:
    """The processes in the file that are alive."""
    try:
        with open(os.path.join(folder, FILE_NAME), encoding="utf-8") as file:
            rows = json.load(file)
        found = [LeftProcess(int(row["node_id"]), int(row["pid"]), str(row["birth"])) for row in rows]
    except (OSError, ValueError, KeyError, TypeError):
        # There is none, or the machine went down while it was written: then nothing in it is alive.
        return []
    return [each for each in found if each.is_alive]


async def end_left(processes: Iterable[LeftProcess], *, stop_seconds: float = STOP_SECONDS) -> None:
    """End processes in order, and kill those that do not end. Returns when all are gone.

    One after the other: each asks a controller to take over what it leads, which is one of them."""
    for each in processes:
        if not _send(each, signal.SIGTERM):
            continue
        try:
            async with asyncio.timeout(stop_seconds):
                await _gone(each)
        except TimeoutError:
            _send(each, signal.SIGKILL)
            await _gone(each)


async def _gone(process: LeftProcess) -> None:
    while process.is_alive:
        # It is no child of this process: the operating system does not say when it ends.
        await asyncio.sleep(_LOOK_SECONDS)


def _send(process: LeftProcess, number: signal.Signals) -> bool:
    """Whether the process was there to get the signal."""
    try:
        if not process.is_alive:
            return False
        os.kill(process.pid, number)
    except ProcessLookupError:
        return False
    return True
