"""Upkeep groups what works on the logs beside the requests, from the start of a broker until its stop."""

from dataclasses import dataclass

from penstock.broker.helper.task import Helper
from penstock.broker.upkeep.compactor import Compacting
from penstock.broker.upkeep.flushing import Flushing
from penstock.broker.upkeep.housekeeping import Housekeeping
from penstock.broker.upkeep.scrubber import Scrubbing


@dataclass(slots=True, frozen=True)
class Upkeep:
    """The broker starts and closes its parts. `helper` is the process that compaction runs in."""

    flushing: Flushing
    housekeeping: Housekeeping
    scrubbing: Scrubbing
    compacting: Compacting
    helper: Helper
