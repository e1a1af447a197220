"""Whether every record of a batch has a key, which a compacted topic asks for: small batches are looked at at once,
large ones some records a turn."""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from penstock.protocol.batch import read_header
from penstock.protocol.errors import DecodeError
from penstock.protocol.records import MAX_DECOMPRESSED_BYTES, Record, iterate

# As much as a turn of the loop has time for.
RECORDS_AT_ONCE: Final = 200
BYTES_AT_ONCE: Final = 256 * 1024
# Of the records that are wrong so many are named.
MAX_NAMED: Final = 100


@dataclass(slots=True)
class Keys:
    """What was found: which records have no key (the first of them, and how many), or that they cannot be read, which
    compaction could not, either."""

    keyless: list[int] = field(default_factory=list)
    keyless_count: int = 0
    damage: str | None = None

    @property
    def are_complete(self) -> bool:
        return not self.keyless_count and self.damage is None


def look_at_once(view: memoryview) -> Keys | None:
    """None if it takes longer than a turn of the loop should; nobody knows beforehand what compressed data becomes."""
    try:
        if len(view) > BYTES_AT_ONCE or read_header(view).record_count > RECORDS_AT_ONCE:
            return None
        found = Keys()
        for index, record in enumerate(iterate(view, max_decompressed_bytes=BYTES_AT_ONCE)):
            if record.key is None:
                _note(found, index)
    except DecodeError:
        return None
    return found


async def look_in_turns(view: memoryview) -> Keys:
    """Others get their turns meanwhile, so the bytes have to be the caller's own."""
    found, index = Keys(), 0
    records = iterate(view, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES)

    def first() -> Record | None:
        # A thread has no use for a StopIteration, and a future none at all.
        return next(records, None)

    try:
        # Before the first record they are decompressed, or copied.
        record = await asyncio.get_running_loop().run_in_executor(None, first)
        while record is not None:
            if record.key is None:
                _note(found, index)
            index += 1
            if index % RECORDS_AT_ONCE == 0:
                await asyncio.sleep(0)
            record = next(records, None)
    except DecodeError as error:
        found.damage = str(error)
    return found


def _note(found: Keys, index: int) -> None:
    found.keyless_count += 1
    if len(found.keyless) < MAX_NAMED:
        found.keyless.append(index)
