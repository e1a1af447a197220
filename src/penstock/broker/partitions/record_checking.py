"""Record checking looks into batches for topics that ask for it: into few records on the event loop, into many in a
helper process; it decompresses in a thread."""

import asyncio
from contextlib import aclosing
from typing import Final

from penstock.broker.helper.task import Helper, HelperDiedError, HelperError
from penstock.broker.helper.tasks import CHECK, CheckingJob
from penstock.broker.partitions.topic_settings import TopicSettings
from penstock.protocol.batch import BatchHeader, read_header
from penstock.protocol.compression import Codec
from penstock.protocol.errors import DecodeError
from penstock.protocol.record_checks import Findings, check_records, payload, walk

# The records and bytes that are checked in one turn of the loop.
RECORDS_AT_ONCE: Final = 200
BYTES_AT_ONCE: Final = 64 * 1024
# Up to here several turns of the loop cost less than sending the batch to another process: 0.8 ms in all for the 1,000
# records of 1 MB, where the way there and back alone takes 2.
RECORDS_IN_TURNS: Final = 2000
# What one batch decompresses to is bounded, and so is the number of batches in memory at a time. The others wait, and
# their connections are not read.
THREADS: Final = 2
JOBS: Final = 4
# Attempts with a batch that kills the helper.
TRIES: Final = 2


def check_at_once(header: BatchHeader, view: memoryview) -> Findings | None:
    """The findings, or None if the check takes longer than a turn of the loop should. The size of compressed data shows
    only on the way."""
    if header.record_count > RECORDS_AT_ONCE:
        return None
    if header.codec is Codec.NONE:
        return check_records(header, payload(header, view))
    if len(view) > BYTES_AT_ONCE:
        return None
    try:
        return check_records(header, payload(header, view, limit=BYTES_AT_ONCE))
    except DecodeError:
        return None


def has_flaws(findings: Findings | None, settings: TopicSettings) -> bool:
    """Whether a batch has to take the ordinary way, which says what is wrong, or looks more closely."""
    return findings is None or findings.damage is not None or (settings.needs_keys and findings.keyless_count > 0)


class RecordChecking:
    """Checks the batches that `check_at_once` leaves."""

    def __init__(self, helper: Helper) -> None:
        self._helper = helper
        self._threads = asyncio.Semaphore(THREADS)
        self._jobs = asyncio.Semaphore(JOBS)

    async def close(self) -> None:
        await self._helper.close()

    async def check(self, view: memoryview) -> Findings:
        """Check a batch, whose bytes have to be the caller's own. HelperError if no verdict can be had now."""
        header = read_header(view)
        if header.record_count > RECORDS_IN_TURNS:
            async with self._jobs:
                return await self._ask_helper(view)
        if header.codec is Codec.NONE:
            return await _in_turns(header, payload(header, view))
        async with self._threads:
            try:
                data = await asyncio.get_running_loop().run_in_executor(None, payload, header, view)
            except DecodeError as error:
                return Findings(str(error))
            return await _in_turns(header, data)

    async def _ask_helper(self, view: memoryview) -> Findings:
        job = CheckingJob(bytes(view))
        for attempt in range(TRIES):
            try:
                async with aclosing(self._helper.run(CHECK, job)) as results:
                    async for findings in results:
                        return findings
            except HelperDiedError:
                if attempt == TRIES - 1:
                    raise
        raise HelperError("the helper gave no verdict")


async def _in_turns(header: BatchHeader, data: bytes) -> Findings:
    steps = walk(header, data, RECORDS_AT_ONCE)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            findings: Findings = end.value
            return findings
        await asyncio.sleep(0)
