"""Decisions of the controller that one request asks for are gathered, so that many of them share a write."""

import asyncio
from typing import Final, Generic, TypeVar

from penstock.broker.cluster.controlling import NotControllerError
from penstock.broker.config.values import ConfigError
from penstock.machines.decisions import Refused, shortened
from penstock.protocol.error_codes import ErrorCode

# Decisions that one request may wait for at the same time.
AT_ONCE: Final = 250

R = TypeVar("R")


class Settling(Generic[R]):
    """`add` what was asked for, or refused before; `finish` returns what became of each, in that order. `at_once` are
    waited for at the same time: each keeps its question and its answer in memory meanwhile."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._asked: list[asyncio.Future[R] | Refused] = []
        self._outcomes: list[R | Refused] = []

    async def add(self, asked: "asyncio.Future[R] | Refused") -> None:
        self._asked.append(asked)
        if len(self._asked) == self._at_once:
            await self._settle()

    async def finish(self) -> list[R | Refused]:
        """NotControllerError if this broker ceased to be the controller before it made any of them: then the whole
        request may go to the next one. Had it made some, another would take those for already made."""
        await self._settle()
        resigned = [outcome for outcome in self._outcomes if isinstance(outcome, NotControllerError)]
        if resigned and all(isinstance(outcome, Refused) for outcome in self._outcomes):
            unknown = [error for error in resigned if error.outcome_unknown]
            raise (unknown or resigned)[0]
        return [_told(outcome) if isinstance(outcome, NotControllerError) else outcome for outcome in self._outcomes]

    async def _settle(self) -> None:
        asked, self._asked = self._asked, []
        waiting = [each for each in asked if not isinstance(each, Refused)]
        if waiting:
            await asyncio.wait(waiting)
        for each in asked:
            if isinstance(each, Refused):
                self._outcomes.append(each)
            else:
                self._add_outcome(each)

    def _add_outcome(self, future: "asyncio.Future[R]") -> None:
        try:
            self._outcomes.append(future.result())
        except Refused as refused:
            # Thousands of them may be kept, and with each the frames that it passed through.
            self._outcomes.append(refused.with_traceback(None))
        except ConfigError as error:
            self._outcomes.append(Refused(ErrorCode.INVALID_CONFIG, shortened(str(error))))


def _told(error: NotControllerError) -> Refused:
    return Refused(ErrorCode.REQUEST_TIMED_OUT if error.outcome_unknown else ErrorCode.NOT_CONTROLLER, error.message)
