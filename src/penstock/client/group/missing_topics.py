"""`MissingTopics` reports topics that a consumer wants and cannot read: each once by a warning, or by an error of every
poll."""

import logging
from collections.abc import Callable
from typing import Final

from penstock.client.cluster.retries import TRIES_FOR_UNKNOWN, may_pass
from penstock.client.errors import BrokerError, ClientError

logger = logging.getLogger(__name__)

MOST_REMEMBERED: Final = 10_000
"""Topics of which it is remembered that they were warned of; beyond that one may be warned of again."""


class MissingTopics:
    """`failed` has the next poll raise an error."""

    def __init__(self, who: str, failed: Callable[[ClientError], None], *, raises: bool) -> None:
        self.raises = raises
        self._who = who
        self._failed = failed
        self._warned: set[str] = set()

    def report(self, name: str, error: ClientError) -> bool:
        """Report why a topic cannot be read, unless that may pass by itself; returns whether it was reported."""
        if may_pass(error, TRIES_FOR_UNKNOWN, repeatable=True):
            return False
        if self.raises or not isinstance(error, BrokerError):
            # An error that is not about the topic, such as a refused password, concerns the application in any case.
            self._failed(error)
        elif name not in self._warned:
            if len(self._warned) >= MOST_REMEMBERED:
                self._warned.clear()
            self._warned.add(name)
            logger.warning("%s waits for a topic that it cannot read: %s", self._who, error)
        return True

    def found(self, name: str) -> None:
        """The topic is there: should it vanish, that is reported again."""
        self._warned.discard(name)
