"""Causes the faults that a test asks for: in connections, in replies, on the disk."""

from collections.abc import Callable
from types import TracebackType
from typing import Self

from penstock.broker.config.values import near_name
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas import INDEX
from penstock.testing.durations import Duration, milliseconds
from penstock.testing.interception import Delay, Drop, Fail, Rule
from penstock.testing.stage import Stage


class Fault:
    """Something that goes wrong until it is cleared: by `clear`, or at the end of a `with` block.

    Example:
        from penstock.testing import Broker

        with Broker() as broker, broker.faults.delay_replies("200 ms", api="Fetch") as fault:
            print(fault.struck)
    """

    def __init__(self, undo: Callable[[], object], rule: Rule | None = None) -> None:
        self._undo = undo
        self._rule = rule

    @property
    def struck(self) -> int:
        """How many requests it has hit, if it is one that hits requests."""
        return 0 if self._rule is None else self._rule.struck

    def clear(self) -> None:
        self._undo()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()


class Faults:
    """Each lasts until it is cleared, alone or with all others; what hits requests also ends after `count` of them.

    Example:
        from penstock.testing import Broker

        with Broker() as broker:
            broker.faults.cut_connections()
            broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", count=3)
            with broker.faults.fill_disk():
                print("producers are refused here")
            broker.faults.clear()
    """

    def __init__(self, stage: Callable[[], Stage]) -> None:
        self._stage = stage
        self._faults: dict[Fault, None] = {}

    def clear(self) -> None:
        """Undo them all. A broker whose disk has failed has to be restarted besides."""
        for fault in list(self._faults):
            fault.clear()

    # Connections

    def cut_connections(self, client_id: str | None = None) -> int:
        """Close the connections of a client, or all, without a goodbye; returns how many there were."""
        stage = self._stage()

        def cut() -> int:
            broker = stage.broker
            found = [] if broker is None else list(broker.listener.connections)
            if client_id is not None:
                found = [connection for connection in found if stage.interception.client_id(connection) == client_id]
            for connection in found:
                connection.abort("the test cut the connection")
            return len(found)

        return stage.host.call(cut)

    def refuse_connections(self) -> Fault:
        """Let no client connect: the port is as if no broker were there. Connections that there are stay."""
        stage = self._stage()
        stage.host.run(stage.refuse_connections(True))
        return self._began(lambda: stage.host.run(stage.refuse_connections(False)))

    # Requests and replies

    def delay_replies(self, by: Duration, api: str | None = None) -> Fault:
        """Hold each reply back for a duration, by the broker's clock; those to later requests of a connection wait
        after it."""
        return self._rule(Delay(_key(api), None, milliseconds(by) / 1000))

    def drop_replies(self, api: str | None = None, count: int | None = 1) -> Fault:
        """Do what is asked, and cut the connection in place of the reply."""
        return self._rule(Drop(_key(api), _count(count)))

    def fail(self, api: str, error: ErrorCode | str | int, count: int | None = 1) -> Fault:
        """Refuse requests with an error, and do nothing of what they ask."""
        return self._rule(Fail(_key(api), _count(count), _code(error)))

    # The disk

    def fail_disk(self) -> Fault:
        """Let every write and sync fail. The broker gives up at the first of them, as it does in production, where it
        then ends: restart it once the disk works again."""
        disk = self._stage().disk
        disk.is_failing = True
        return self._began(lambda: setattr(disk, "is_failing", False))

    def fill_disk(self, free_bytes: int | None = None) -> Fault:
        """Leave this many bytes free; by default what the broker keeps in reserve for itself and not a byte more, so
        that it refuses records and goes on otherwise."""
        stage = self._stage()
        stage.host.run(stage.fill_disk(free_bytes))
        return self._began(self.free_disk)

    def free_disk(self) -> None:
        """There is room again."""
        stage = self._stage()
        stage.host.run(stage.free_disk())

    def _rule(self, rule: Rule) -> Fault:
        stage = self._stage()
        stage.host.call(lambda: stage.interception.add(rule))
        return self._began(lambda: stage.host.call(lambda: stage.interception.remove(rule)), rule)

    def _began(self, undo: Callable[[], object], rule: Rule | None = None) -> Fault:
        def end() -> None:
            if self._faults.pop(fault, self) is None:
                undo()

        fault = Fault(end, rule)
        self._faults[fault] = None
        return fault


def _key(name: str | None) -> int | None:
    if name is None:
        return None
    names = {known.lower(): (key, known) for key, (_, known) in INDEX.items()}
    wanted = name.replace("_", "").lower()
    if wanted not in names:
        near = near_name(wanted, names)
        raise ValueError(f"there is no API {name!r}" + (f"; did you mean {names[near][1]}?" if near else ""))
    return names[wanted][0]


def _code(error: ErrorCode | str | int) -> ErrorCode:
    try:
        return ErrorCode[error.upper()] if isinstance(error, str) else ErrorCode(error)
    except (KeyError, ValueError):
        raise ValueError(f"{error!r} is no error code of Kafka; NOT_LEADER_OR_FOLLOWER and 6 are one") from None


def _count(count: int | None) -> int | None:
    if count is not None and count < 1:
        raise ValueError(f"a fault strikes once or more, not {count} times; None lets it strike until it is cleared")
    return count
