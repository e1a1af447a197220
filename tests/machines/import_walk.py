"""The walk of one partition whose metadata is lost now and then, and imported from an export that may be older."""

from typing import Any

from penstock.machines.cluster import MIN_ISR, ClusterImage
from penstock.machines.controller import Controller
from penstock.machines.elections import awaits_reports
from penstock.machines.founding import FIRST_INDEX, imported_snapshot
from penstock.machines.log_ends import NO_EPOCH, LogEnd
from penstock.machines.log_reader import LogReader
from penstock.machines.registration import Registration
from tests.machines.replica_walk import NUMBERS, TOPIC, TOPIC_ID, Configs, Replica, Walk


class ImportWalk(Walk):
    """`losses` is how often the metadata was lost, `led` how often reports then led to a leader."""

    def __init__(self, seed: int) -> None:
        self.epoch_of: dict[int, int] = {}
        self.reports: dict[int, Registration] = {}
        self.losses = self.led = 0
        super().__init__(seed)

    def step(self) -> None:
        if self.random.random() < 0.02:
            self.lose_metadata()
            self.check()
        waits = awaits_reports(self.newest)
        super().step()
        self.led += waits and not awaits_reports(self.newest)

    def write(self, replica: Replica) -> None:
        super().write(replica)
        if replica.leader is not None:
            self.epoch_of[replica.log[-1]] = replica.leader.leader_epoch

    def lose_metadata(self) -> None:
        """Everything stops. The export is any state that had all replicas of today; its configs may be others, too."""
        exports = [state for state, _ in self.states if {*self.newest.replicas} <= {*state.replicas}]
        image = self.image.copy()
        image.topics[TOPIC].partitions[0] = self.random.choice(exports)
        min_isr = self.random.choice(NUMBERS)
        image.topics[TOPIC].configs = {} if min_isr is None else {MIN_ISR: min_isr}
        self.image, self.losses = ClusterImage(), self.losses + 1
        self.image.apply_all(LogReader().read_snapshot(FIRST_INDEX, imported_snapshot(image, now_ms=0)))
        self.reports.clear()
        self.controller = Controller(self.image, Configs(), reports=self.reports)
        self.states = [(self.image.topics[TOPIC].partitions[0], self.image.min_isr(self.image.topics[TOPIC]))]
        for replica in self.replicas:
            replica.leader = replica.proposal = replica.image = None
            replica.read = 0

    def register(self, broker_id: int) -> None:
        if not self.states:
            super().register(broker_id)
            return
        self.epochs += 1
        replica = self.replicas[broker_id]
        replica.epoch, replica.leader, replica.proposal = self.epochs, None, None
        waits = awaits_reports(self.newest) and broker_id in self.newest.replicas
        ends = {(TOPIC_ID, 0): self.end_of(replica)} if waits else {}
        told: dict[str, Any] = {"was_clean": False, "log_ends": ends}
        registration = Registration(broker_id, self.epochs, {"PLAIN": ("h", 9092)}, None, f"of {broker_id}", **told)
        self.decide("register_broker", registration)
        self.reports[broker_id] = registration

    def end_of(self, replica: Replica) -> LogEnd:
        """Elections that left no record are forgotten with the metadata."""
        newest = max((self.epoch_of[record] for record in replica.log), default=NO_EPOCH)
        return LogEnd(self.epoch_of[replica.log[-1]] if replica.log else NO_EPOCH, len(replica.log), newest)
