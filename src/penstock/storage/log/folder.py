"""Makes the folder of a log at the first append, and its name durable before anything in it is relied on.

Payloads of its checkpoints, little-endian: `identity` (version 1) is bytes by which the owner knows its log,
`log-start` (version 1) is the i64 offset of the first record that may be read.
"""

import os.path
from struct import Struct
from typing import Final

from penstock.storage.errors import CorruptCheckpointError, SyncFailedError
from penstock.storage.files import Files, lacks_descriptors, sync_file
from penstock.storage.files.checkpoint import read_checkpoint, write_checkpoint, write_first_checkpoint
from penstock.storage.log.leader_epochs import LeaderEpochs
from penstock.storage.log.unflushed import FlushWork, Unflushed

LOG_START_FILE: Final = "log-start"
IDENTITY_FILE: Final = "identity"
_LOG_START_KIND: Final = b"STRT"
_LOG_START_VERSION: Final = 1
_LOG_START: Final = Struct("<q")
_IDENTITY_KIND: Final = b"IDEN"
_IDENTITY_VERSION: Final = 1


class LogDirectory:
    def __init__(self, files: Files, path: str, identity: bytes) -> None:
        self.path = path
        self.parent = os.path.dirname(path)
        self._files = files
        self._identity = identity
        # An empty one may be what a killed process left: its name is not durable.
        self.exists = files.stat(path) is not None and bool(files.list(path))
        self._name_is_durable = self.exists

    def make(self, epochs: LeaderEpochs, unflushed: Unflushed) -> None:
        """Make the folder, before the first file is made in it. What has to be synced for it is added to `unflushed`,
        even if this fails: something may be there, and the next process will rely on its name."""
        if self.exists:
            unflushed.directories.add(self.path)
            return
        if self._files.stat(self.path) is None:
            self._files.make_directory(self.path)
        unflushed.directories |= {self.parent, self.path}
        if self._identity:
            path = f"{self.path}/{IDENTITY_FILE}"
            write_first_checkpoint(self._files, path, _IDENTITY_KIND, _IDENTITY_VERSION, self._identity)
            unflushed.files.append(path)
        if epochs.write_first():
            unflushed.files.append(epochs.path)
        self.exists = True

    def make_name_durable(self) -> None:
        """Sync the name of the folder: if it is lost, all files in the folder are. SyncFailedError if that of the
        identity is lost, which is never written again."""
        if not self._name_is_durable:
            if self._identity:
                self._sync_identity()
            self._files.sync_directory(self.parent)
            self._name_is_durable = True

    def _sync_identity(self) -> None:
        path = f"{self.path}/{IDENTITY_FILE}"
        try:
            sync_file(self._files, path)
        except OSError as error:
            if lacks_descriptors(error):
                raise
            raise SyncFailedError(error.errno, f"{path} could not be synced: {error}") from error

    def flushed(self, work: FlushWork) -> None:
        """A flush has made this durable."""
        self._name_is_durable |= self.parent in work.directories


def read_identity(files: Files, directory: str, *, was_flushed: bool) -> bytes | None:
    """None if there is none, or if a crash kept it from being written, which means that nothing written after it was
    flushed either."""
    try:
        return read_checkpoint(files, f"{directory}/{IDENTITY_FILE}", _IDENTITY_KIND, _IDENTITY_VERSION)
    except CorruptCheckpointError:
        if was_flushed:
            raise
        return None


def write_log_start(files: Files, directory: str, offset: int) -> None:
    payload = _LOG_START.pack(offset)
    write_checkpoint(files, f"{directory}/{LOG_START_FILE}", _LOG_START_KIND, _LOG_START_VERSION, payload)


def read_log_start(files: Files, directory: str) -> int:
    payload = read_checkpoint(files, f"{directory}/{LOG_START_FILE}", _LOG_START_KIND, _LOG_START_VERSION)
    offset: int = _LOG_START.unpack(payload)[0] if payload else 0
    return offset
