"""A draft is a decision about a group in the making: it gathers changes and tries them on a copy of the group, so that
one may lead to the next."""

from collections.abc import Hashable

from penstock.machines.groups.changes import Change, Decision, Event, Instant, Reply
from penstock.machines.groups.classic import ClassicGroup
from penstock.machines.groups.members import Waiter
from penstock.machines.groups.records import GroupForgotten, GroupStored
from penstock.machines.groups.settings import GroupSettings
from penstock.protocol.schema import Message


class Draft:
    """`group` is the group as it will be when what was decided so far is applied."""

    __slots__ = ("group", "now", "settings", "_changes", "_replies")

    def __init__(self, group: ClassicGroup, now: Instant, settings: GroupSettings) -> None:
        self.group = group.draft()
        self.now = now
        self.settings = settings
        self._changes: list[Change] = []
        self._replies: list[Reply] = []

    def event(self, event: Event) -> None:
        """Something happens that is not persisted."""
        self.group.apply(event)
        self._changes.append(event)

    def store(self, record: GroupStored) -> None:
        """The group is persisted as it is in the record."""
        self.group.restore(record)
        self._changes.append(record)

    def forget_if_unused(self) -> None:
        """A group that has had no member goes when no member is invited to it any more. Nothing may come after that."""
        if self.group.is_unused:
            self._changes.append(GroupForgotten(self.group.group_id))

    def reply(self, token: Hashable, response: Message, *, after_commit: bool = True) -> None:
        """Answer the caller."""
        self._replies.append(Reply(token, response, after_commit))

    def answer(self, waiter: Waiter | None, response: Message) -> None:
        """Answer a caller that waited, if it is still there."""
        if waiter is not None and waiter.token is not None:
            self._replies.append(Reply(waiter.token, response, after_commit=True))

    def decision(self) -> Decision:
        return Decision(tuple(self._changes), tuple(self._replies))


def answered(token: Hashable, response: Message, *, after_commit: bool = True) -> Decision:
    """Answer the caller without changing anything."""
    return Decision((), (Reply(token, response, after_commit),))
