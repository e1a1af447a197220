"""What a producer knows about its topics: asked for when they are first used, when they turn out wrong, and when they
have become old."""

import asyncio
from collections.abc import Callable, Collection
from typing import Final

from penstock.client import retrying
from penstock.client.background import Background
from penstock.client.cluster import Cluster
from penstock.client.errors import ClientError
from penstock.client.partitioning import TopicView
from penstock.client.settings import ProducerSettings

# How long one look at the metadata may take before another is tried.
REFRESH_MS: Final = 5_000


class TopicViews:
    """`told` is called with the topics that were asked for again, and what went wrong with some of them; it returns
    those that it has to know more about."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ProducerSettings,
        background: Background,
        told: Callable[[dict[str, ClientError | None]], Collection[str]],
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._background = background
        self._told = told
        self._views: dict[str, TopicView] = {}
        self._stale: set[str] = set()
        self._is_refreshing = False
        background.later(settings.metadata_max_age_ms / 1000, self._refresh_old)

    def __getitem__(self, name: str) -> TopicView:
        return self._views[name]

    async def find(self, name: str, *, is_fresh: bool = False) -> TopicView:
        """A topic, asked for if nothing is known of it, or if what is known has to be fresh."""
        view = self._views.get(name)
        if view is None or is_fresh:
            topic = await self._cluster.topic(name, fresh=is_fresh, timeout_ms=self._settings.max_block_ms)
            # Somebody else may have asked for the same meanwhile.
            view = self._views.setdefault(name, TopicView(name))
            view.update(topic)
        return view

    def refresh(self, name: str) -> None:
        """Ask again, soon: it led somewhere wrong."""
        self._stale.add(name)
        if not self._is_refreshing:
            self._is_refreshing = True
            self._background.start(self._refresh_stale())

    def _refresh_old(self) -> None:
        for name in self._views:
            self.refresh(name)
        self._background.later(self._settings.metadata_max_age_ms / 1000, self._refresh_old)

    async def _refresh_stale(self) -> None:
        tries = 0
        try:
            while self._stale:
                names, self._stale = self._stale, set()
                found = await self._cluster.topics(names, fresh=True, timeout_ms=REFRESH_MS)
                errors: dict[str, ClientError | None] = {}
                for name, topic in found.items():
                    if isinstance(topic, ClientError):
                        errors[name] = topic
                    else:
                        errors[name] = None
                        self._views[name].update(topic)
                self._stale |= set(self._told(errors))
                if self._stale:
                    tries += 1
                    await asyncio.sleep(retrying.backoff_ms(tries) / 1000)
        finally:
            self._is_refreshing = False
