"""`in_order` decides which broker is asked what any broker can answer: one that is not silent, and whom to ask next if
that one is silent, too."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from penstock.client.metadata import Address

PATIENCE_SECONDS: Final = 1.0
"""How long a broker may be silent before another one is asked as well."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Candidate:
    """An address at which a broker may answer."""

    address: Address
    is_open: bool = False
    """Whether there is a connection to it for such questions."""
    in_flight: int = 0
    """Requests on that connection that are not answered yet."""
    silent_seconds: float = 0.0
    """How long the broker has owed an answer, on any of its connections, or has not finished opening one."""
    is_known: bool = True
    """Whether brokers have named the address themselves, or only the user has."""

    @property
    def is_silent(self) -> bool:
        return self.silent_seconds >= PATIENCE_SECONDS


def in_order(candidates: Iterable[Candidate]) -> list[Candidate]:
    """First open connections, the one with the least to do first, then brokers that the cluster has named, then
    addresses that the user gave; after all of them brokers that are silent, the shortest silence first. Among equals
    the given order stays."""
    return sorted(
        candidates,
        key=lambda each: (
            each.silent_seconds if each.is_silent else 0.0,
            not each.is_open,
            each.in_flight,
            not each.is_known,
        ),
    )
