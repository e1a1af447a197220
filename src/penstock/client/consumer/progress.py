"""`Progress` commits in the background how far the application has come, and never messages that it is still working
on."""

import asyncio
import logging

from penstock.client.admin.group_offsets import CommittedOffset, Offsets
from penstock.client.consumer.fetched import UNKNOWN
from penstock.client.consumer.poller import Poller
from penstock.client.consumer.subscription import Subscription
from penstock.client.errors import ClientError
from penstock.client.group.committer import Callback, Committer
from penstock.client.metadata import TopicPartition, named
from penstock.client.settings import ConsumerSettings

logger = logging.getLogger(__name__)


class Progress:
    """Commits for the application, unless there is no committer, or the settings leave commits to the application."""

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
        """Stop committing in the background; only `commit` commits from now on."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def note(self, offsets: Offsets) -> None:
        """Note that the application commits these offsets itself."""
        for key, committed in offsets.items():
            if (cursor := self._subscription.cursors.get(key)) is not None:
                cursor.committed = committed.offset

    def came_to(self, offsets: Offsets) -> None:
        """The application is about to commit these offsets: it may be done with more messages than are known here."""
        for key, (offset, epoch, _) in offsets.items():
            cursor = self._subscription.cursors.get(key)
            if cursor is not None and offset > cursor.done:
                cursor.done, cursor.done_epoch = offset, epoch

    def tell(self, callback: Callback) -> Callback:
        """Wraps the callback: offsets that could not be committed do not count as committed."""

        def heard(offsets: Offsets, error: BaseException | None) -> None:
            if error is not None:
                self.note(dict.fromkeys(offsets, CommittedOffset(UNKNOWN)))
            callback(offsets, error)

        return heard

    async def commit(self) -> None:
        """Commit at once, before partitions go; if it fails, messages come again, and nothing else happens."""
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
            # A member that has just left the group could not commit, and is about to learn what it has lost.
            if committer.group.identity is not None and (offsets := self._done()):
                self.note(offsets)
                committer.commit_soon(offsets, self.tell(log_failure))


def log_failure(offsets: Offsets, error: BaseException | None) -> None:
    if error is not None:
        logger.warning("offsets of %s were not committed: %s", named(offsets), error)
