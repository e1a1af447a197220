"""A disk of its own for a broker: ext4 in a file, which can lose what was not synced, as in a power loss."""

import asyncio
import fcntl
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Final

from tools.clients.packages import install_commands

_MEGABYTES: Final = 1024
"""Of which the file takes what is written."""
# An ioctl of XFS that ext4 has, too: nothing that is not on the disk gets there any more, not even what the journal has
# in memory. Its number and its flag are those of <linux/fs.h> and fs/ext4/ext4.h.
_SHUTDOWN: Final = 0x8004587D
_WITHOUT_FLUSHING_THE_JOURNAL: Final = struct.pack("I", 2)


class NoDiskError(Exception):
    """Why there can be no such disk on this machine."""


class Ext4Disk:
    """Mounted at `path` from `create` to `remove`."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "disk"
        self._image = folder / "disk.img"

    def create(self) -> None:
        if sys.platform != "linux":
            raise NoDiskError("ext4 needs Linux")
        if os.geteuid() != 0:
            raise NoDiskError("only root may mount a disk")
        asyncio.run(install_commands("losetup", "mkfs.ext4", "mount"))
        self.path.mkdir()
        with self._image.open("wb") as image:
            image.truncate(_MEGABYTES << 20)
        _run("mkfs.ext4", "-q", "-F", str(self._image))
        self._mount()
        # A data folder that others can enter is warned of, and no power loss may bring that back.
        self.path.chmod(0o700)
        os.sync()

    def remove(self) -> None:
        self.unmount()
        self._image.unlink()

    def unmount(self) -> None:
        """Its content stays in the file. One that is not mounted is left as it is."""
        if self.path.is_mount():
            _run("umount", str(self.path))

    def shut_down(self) -> None:
        """Whatever is on its way to the disk is lost, and every write and sync from now on fails."""
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(folder, _SHUTDOWN, _WITHOUT_FLUSHING_THE_JOURNAL)
        finally:
            os.close(folder)

    def come_back(self) -> None:
        """As after a power loss: the journal is replayed."""
        self.unmount()
        self._mount()

    def _mount(self) -> None:
        # A device of its own, which goes with the mount: any process that was started in the meantime in a mount
        # namespace of its own may still have the last one, which stays as it was shut down.
        device = _run("losetup", "--find", "--show", str(self._image))
        try:
            _run("mount", "-t", "ext4", device, str(self.path))
        finally:
            _run("losetup", "--detach", device)


def unmount_below(folder: Path) -> None:
    """What a killed run has left mounted."""
    inside = f"{folder.resolve()}/"
    mounted = (line.split()[1] for line in Path("/proc/mounts").read_text().splitlines())
    for path in [path for path in mounted if path.startswith(inside)]:
        _run("umount", path)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NoDiskError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout.strip()
