"""The rule by which brokers that ended are started again: at once at first, and later and later if it does not help."""

from dataclasses import dataclass
from typing import Final

FIRST_SECONDS: Final = 0.5
LONGEST_SECONDS: Final = 30.0
# A broker that has served for this long and then ends has met something new: it is started without a long wait.
STEADY_SECONDS: Final = 60.0
REFUSED: Final = 1
"""The exit code of a broker that has said why it cannot start."""
MANY_REFUSALS: Final = 3


@dataclass(slots=True)
class Restarts:
    """What has become of one broker until now."""

    in_a_row: int = 0
    """How often it ended without having served for a while."""
    refusals: int = 0
    """How often in a row it refused to start."""

    def ended(self, code: int, *, served_seconds: float | None) -> float:
        """The broker ended, and had served for this long, or never: returns the seconds to wait before its start."""
        was_refused = code == REFUSED and served_seconds is None
        self.refusals = self.refusals + 1 if was_refused else 0
        if served_seconds is not None and served_seconds >= STEADY_SECONDS:
            self.in_a_row = 0
        # The exponent is bounded, too: a broker may fail for years.
        delay = min(LONGEST_SECONDS, FIRST_SECONDS * (1 << min(self.in_a_row, 16)))
        self.in_a_row += 1
        return delay

    @property
    def is_hopeless(self) -> bool:
        """Whether the broker will not start before its operator has done something. It is tried all the same."""
        return self.refusals >= MANY_REFUSALS
