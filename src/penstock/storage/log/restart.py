"""Restarts a log, empty, at another offset: a marker says so before anything is thrown away.

Once the checkpoint `restart` (version 1: i64, little-endian, the offset) is durable, everything else in the folder but
the identity is of a log that is no more. The marker goes last, and the next process that opens the log finishes what
was begun: after a crash there is the old log, whole, or the new one, empty.
"""

import os.path
from struct import Struct
from typing import Final

from penstock.storage.files import Files
from penstock.storage.files.checkpoint import TEMPORARY, read_checkpoint, remove_checkpoint, write_checkpoint
from penstock.storage.log.cleaned import CLEANED_FILE
from penstock.storage.log.compaction_state import FILE_NAME as COMPACTION_FILE
from penstock.storage.log.folder import write_log_start
from penstock.storage.log.holes import FILE_NAME as HOLES_FILE
from penstock.storage.log.index import OFFSET_INDEX, TIME_INDEX
from penstock.storage.log.leader_epochs import FILE_NAME as LEADER_EPOCHS_FILE
from penstock.storage.log.producer_snapshots import SUFFIX as SNAPSHOT_FILE
from penstock.storage.log.segment import DELETED_FILE, LOG_FILE
from penstock.storage.log.swap import SWAP_FILE

FILE_NAME: Final = "restart"
_KIND: Final = b"RSTR"
_VERSION: Final = 1
_OFFSET: Final = Struct("<q")
_NAMES: Final = (LEADER_EPOCHS_FILE, COMPACTION_FILE, HOLES_FILE)
# In this order: an index that outlives its segment would be taken for that of another one.
_SUFFIXES: Final = (
    OFFSET_INDEX,
    TIME_INDEX,
    LOG_FILE,
    SWAP_FILE,
    CLEANED_FILE,
    SNAPSHOT_FILE,
    DELETED_FILE,
    TEMPORARY,
)


def begin_restart(files: Files, directory: str, offset: int) -> None:
    """Durable when it returns: the log is empty, at this offset."""
    write_checkpoint(files, f"{directory}/{FILE_NAME}", _KIND, _VERSION, _OFFSET.pack(offset))


def clear_restarted(files: Files, directory: str) -> int | None:
    """When a log is opened: remove what a restart has left, durably, and return the offset that it was made at; None
    if there was none. The caller lowers the recovery point, and ends the restart then."""
    payload = read_checkpoint(files, f"{directory}/{FILE_NAME}", _KIND, _VERSION)
    if payload is None:
        return None
    offset: int = _OFFSET.unpack(payload)[0]
    names = [name for name in files.list(directory) if name != FILE_NAME]
    for suffix in _SUFFIXES:
        for name in names:
            if os.path.splitext(name)[1] == suffix:
                files.unlink(f"{directory}/{name}")
    for name in names:
        if name in _NAMES:
            files.unlink(f"{directory}/{name}")
    write_log_start(files, directory, offset)
    return offset


def end_restart(files: Files, directory: str) -> None:
    """Durable when it returns: what is in the folder now counts."""
    remove_checkpoint(files, f"{directory}/{FILE_NAME}")
