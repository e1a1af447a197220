"""The cluster state follows the metadata log: it keeps the image of the cluster, and reports what changed in it."""

import asyncio
import heapq
import itertools
import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import fields
from typing import Final

from penstock.machines.cluster import ClusterImage, ImageChange, difference
from penstock.machines.cluster_records import DamagedRecordsError, Record, UnknownRecordError
from penstock.machines.log_reader import LogReader
from penstock.metadata.store import Contact, EntriesDroppedError, MetadataStore, SessionLostError, StoreRefusedError

log = logging.getLogger(__name__)

# The wait after the store was out of reach for a whole session, if it says that contact is back.
RETRY_SECONDS: Final = 0.1


class ClusterState:
    """`load` the image, then `follow` the log. `changed` gets what a step of the log has changed, after the image has
    it; the next step waits for it."""

    def __init__(self, store: MetadataStore, changed: Callable[[ImageChange], Awaitable[None]]) -> None:
        # One object for good: components that read it keep it.
        self.image = ClusterImage()
        # The last entry of the newest snapshot that is known here.
        self.snapshot_index = 0
        self._reader = LogReader()
        self._store = store
        self._changed = changed
        # The last entry that `changed` is done with.
        self._followed = 0
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()
        self._stepped = asyncio.Event()

    @property
    def index(self) -> int:
        """The last entry that the image has."""
        return self._reader.index

    async def load(self) -> None:
        """Build the image from the newest snapshot and what follows it; `changed` is not called."""
        await self._load_snapshot()
        is_whole = False
        while not is_whole:
            try:
                entries = await self._store.entries(self.index)
            except EntriesDroppedError:
                # The controller has saved another snapshot meanwhile.
                await self._load_snapshot()
                continue
            for index, entry in entries:
                self._apply(index, entry)
            is_whole = not entries
        self._followed = self.index

    async def follow(self) -> None:
        """Read on for ever. What cannot be understood raises StoreRefusedError: a broker that passed over it would
        disagree with the others."""
        while True:
            try:
                await self._store.wait_for_entries(self.index)
                await self._step()
            except SessionLostError:
                if self._store.contact is Contact.LOST:
                    await self._store.wait_for_contact(Contact.LOST, self._store.session)
                else:
                    await asyncio.sleep(RETRY_SECONDS)

    def reached(self, index: int) -> "asyncio.Future[None]":
        """To be awaited: until this broker has become what the log says up to an entry."""
        reached = asyncio.get_running_loop().create_future()
        if index <= self._followed:
            reached.set_result(None)
        else:
            heapq.heappush(self._waiting, (index, next(self._numbers), reached))
        return reached

    async def until(self, condition: Callable[[ClusterImage], bool]) -> None:
        """Wait until the image is like this, and this broker has followed it."""
        while self._followed < self.index or not condition(self.image):
            await self._stepped.wait()

    def close(self) -> None:
        """End all waiting, once nothing follows any more."""
        for _, _, reached in self._waiting:
            reached.cancel()
        self._waiting.clear()

    def draw_topic_id(self) -> bytes:
        """An id that no topic has. Those that begin with zeros are kept for the protocol's own use."""
        while (drawn := secrets.token_bytes(16)) in self.image.topics_by_id or drawn[:8] == bytes(8):
            pass
        return drawn

    async def _step(self) -> None:
        """Take in what the log has now, or as much of it as comes at once."""
        change = ImageChange()
        try:
            for index, entry in await self._store.entries(self.index):
                change.merge(self._apply(index, entry))
        except EntriesDroppedError:
            change = await self._reload()
        await self._changed(change)
        self._followed = self.index
        self._stepped.set()
        self._stepped = asyncio.Event()
        while self._waiting and self._waiting[0][0] <= self._followed:
            _, _, reached = heapq.heappop(self._waiting)
            if not reached.done():
                reached.set_result(None)

    async def _reload(self) -> ImageChange:
        """This broker was too slow: a snapshot has replaced what it had not read."""
        before = self.image.copy()
        index = self.index
        await self._load_snapshot()
        log.info("the metadata was loaded from its snapshot", extra={"from_index": index, "to_index": self.index})
        return difference(before, self.image)

    async def _load_snapshot(self) -> None:
        snapshot = await self._store.load_snapshot()
        if snapshot is None or snapshot[0] <= self.index:
            # What has replaced an entry will be there in a moment.
            await asyncio.sleep(RETRY_SECONDS if self.index else 0)
            return
        index, data = snapshot
        image = ClusterImage()
        image.apply_all(_understood(self._reader.read_snapshot, index, data))
        for field in fields(ClusterImage):
            setattr(self.image, field.name, getattr(image, field.name))
        self.snapshot_index = index

    def _apply(self, index: int, data: bytes) -> ImageChange:
        return self.image.apply_all(_understood(self._reader.read, index, data))


def _understood(read: Callable[[int, bytes], list[Record]], index: int, data: bytes) -> list[Record]:
    try:
        return read(index, data)
    except (UnknownRecordError, DamagedRecordsError) as error:
        raise StoreRefusedError(str(error)) from error
