"""The metadata log of the simulated cluster, and the controller of production that decides what comes into it."""

from typing import Final, TypeVar

from penstock.broker.config.rules import TableRules
from penstock.broker.config.typed import BrokerConfig
from penstock.machines.cluster import ClusterImage, PartitionImage
from penstock.machines.cluster_records import Record
from penstock.machines.controller import Controller, TopicDefaults
from penstock.machines.decisions import ControllerDecision, Refused
from penstock.machines.partition_leader import Answered, Proposal
from penstock.machines.registration import Registration

TOPIC: Final = "orders"
TOPIC_ID: Final = b"0123456789abcdef"
BROKERS: Final = (0, 1, 2)
_rules: Final = TableRules(BrokerConfig({}))

Reply = TypeVar("Reply")


class Metadata:
    """It never fails: what its faults do is simulated elsewhere. Each broker reads `entries` at its own pace."""

    def __init__(self) -> None:
        self.image = ClusterImage()
        self.entries: list[tuple[Record, ...]] = []
        self._controller = Controller(self.image, _rules)
        self._last_broker_epoch = 0
        self._decide(self._controller.elected(0, 1))

    @property
    def has_topic(self) -> bool:
        return TOPIC in self.image.topics

    @property
    def partition(self) -> PartitionImage:
        return self.image.topics[TOPIC].partitions[0]

    def create_topic(self, configs: dict[str, str]) -> None:
        decision = self._controller.create_topic(
            TOPIC, topic_id=TOPIC_ID, defaults=TopicDefaults(1, 3), assignment=[(0, BROKERS)], configs=configs
        )
        self._decide(decision)

    def register(self, broker_id: int, folder: str, *, was_clean: bool) -> int:
        """Returns the epoch of the broker."""
        self._last_broker_epoch += 1
        epoch = self._last_broker_epoch
        self._decide(self._controller.register_broker(Registration(broker_id, epoch, {}, None, folder, was_clean)))
        return epoch

    def lose(self, broker_id: int) -> None:
        """The session of a broker has ended, whatever the broker believes."""
        if broker_id in self.image.brokers:
            epoch = self.image.brokers[broker_id].broker_epoch
            self._decide(self._controller.broker_lost(broker_id, epoch))

    def is_alive(self, broker_id: int) -> bool:
        return self.image.brokers[broker_id].is_alive

    def is_needed(self, broker_id: int) -> bool:
        """Whether the broker alone has everything."""
        return {*self.partition.isr, *self.partition.elr} == {broker_id}

    def alter(self, broker_id: int, broker_epoch: int, proposal: Proposal) -> Answered:
        """A leader says who is in sync. What makes its proposal void comes by the log, as `InSync` has it."""
        try:
            self._decide(self._controller.alter_partition(broker_id, broker_epoch, TOPIC_ID, 0, proposal))
        except Refused as refused:
            return Answered.REFUSED if refused.code.name == "INELIGIBLE_REPLICA" else Answered.ACCEPTED
        return Answered.ACCEPTED

    def prefer(self) -> None:
        """Let the first replica lead, if it can."""
        self._decide(self._controller.balance_leaders())

    def _decide(self, decision: ControllerDecision[Reply]) -> None:
        if decision.records:
            self.entries.append(decision.records)
            self.image.apply_all(decision.records)
