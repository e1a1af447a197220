"""Remembers which stretches of a segment were checked, so that readers in different places of it do not have the same
bytes checked over and over. Values never change: a thread may add to them while a loop looks."""

from typing import Final, TypeAlias

Stretches: TypeAlias = tuple[tuple[int, int], ...]
"""Each from a position to another; none touches another, and the one that was added or grew last comes last."""

MOST: Final = 64
"""The number of stretches that are remembered. Readers that go on make few and long ones."""


def covers(stretches: Stretches, position: int, end: int) -> bool:
    """Whether all from a position to another was checked."""
    return any(start <= position and end <= stop for start, stop in reversed(stretches))


def joined(stretches: Stretches, position: int, end: int) -> Stretches:
    """With one stretch more, joined to those that it touches. If there are too many, the oldest is forgotten."""
    others = []
    for start, stop in stretches:
        if start <= end and position <= stop:
            position, end = min(start, position), max(stop, end)
        else:
            others.append((start, stop))
    return (*others[-(MOST - 1) :], (position, end))
