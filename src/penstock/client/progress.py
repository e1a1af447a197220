"""How far the application has come, committed for it in the background: never what it is still working on."""

import asyncio
import logging

from penstock.client.committing import Callback, Committer, Offsets
from penstock.client.errors import ClientError
from penstock.client.groups import CommittedOffset
from penstock.client.metadata import TopicPartition, named
from penstock.client.polling import Poller
from penstock.client.settings import ConsumerSettings
from penstock.client.subscription import UNKNOWN, Subscription

logger = logging.getLogger(__name__)


class Progress:
    """Without a committer, or where the settings say so, nothing is committed but what the application commits."""

    def __init__(
        self, settings: ConsumerSettings, subscription: Subscription, poller: Poller, committer: Committer | None
    ) -> None:
        self._interval_ms = settings.auto_commit_interval_ms
        self._subscription = subscription
        self._poller = poller
        self._committer = committer if settings.enable_auto_commit else None
        self._task: asyncio.Task[None] | None = None
        if self._committer is not None:
            self._task = asyncio.get_running_loop().create_task(self._commit_for_ever(self._committer))

    async def close(self) -> None:
        """Only `commit` commits from now on."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def note(self, offsets: Offsets) -> None:
        """The application commits these itself."""
        for key, committed in offsets.items():
            if (reading := self._subscription.readings.get(key)) is not None:
                reading.committed = committed.offset

    def came_to(self, offsets: Offsets) -> None:
        """The application is about to commit these: it may be through with more than we know of."""
        for key, (offset, epoch, _) in offsets.items():
            reading = self._subscription.readings.get(key)
            if reading is not None and offset > reading.done:
                reading.done, reading.done_epoch = offset, epoch

    def tell(self, callback: Callback) -> Callback:
        """The same callback; what could not be committed is not taken to be."""

        def heard(offsets: Offsets, error: BaseException | None) -> None:
            if error is not None:
                self.note(dict.fromkeys(offsets, CommittedOffset(UNKNOWN)))
            callback(offsets, error)

        return heard

    async def commit(self) -> None:
        """The last chance for partitions that go; if it fails, messages come again, and no more."""
        if self._committer is not None:
            offsets = self._done()
            self.note(offsets)
            try:
                await self._committer.commit(offsets)
            except ClientError as error:
                log_failure(offsets, error)

    def _done(self) -> dict[TopicPartition, CommittedOffset]:
        self._poller.note_progress()
        return {each.key: CommittedOffset(each.done, each.done_epoch) for each in self._subscription.committable()}

    async def _commit_for_ever(self, committer: Committer) -> None:
        while True:
            await asyncio.sleep(self._interval_ms / 1000)
            # Who is just outside the group could not commit, and is about to learn what it has lost.
            if committer.group.identity is not None and (offsets := self._done()):
                self.note(offsets)
                committer.commit_soon(offsets, self.tell(log_failure))


def log_failure(offsets: Offsets, error: BaseException | None) -> None:
    if error is not None:
        logger.warning("offsets of %s were not committed: %s", named(offsets), error)
