"""Findings are what is wrong with a cluster; the facts are what they are found by."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from penstock.client.metadata import TopicPartition


class Severity(StrEnum):
    """Broken: clients wait or are refused. At risk: all is served, and the next failure may change that. The others are
    no problem: what the cluster is doing by itself, and what could be better."""

    BROKEN = "broken"
    AT_RISK = "at risk"
    UNDER_WAY = "under way"
    HINT = "hint"

    @property
    def is_problem(self) -> bool:
        return self in (Severity.BROKEN, Severity.AT_RISK)


class Kind(StrEnum):
    """What scripts know a finding by."""

    NO_CONTROLLER = "no_controller"
    NO_LEADER = "no_leader"
    IMPORTED = "imported"
    BELOW_MIN_ISR = "below_min_isr"
    FOLDER_OFFLINE = "folder_offline"
    LOG_OFFLINE = "log_offline"
    DISK_FULL = "disk_full"
    DISK_NEARLY_FULL = "disk_nearly_full"
    BROKER_AWAY = "broker_away"
    BROKER_SILENT = "broker_silent"
    BROKER_BEHIND = "broker_behind"
    FEW_REPLICAS = "few_replicas"
    FEWER_THAN_DEFAULT = "fewer_than_default"
    ONE_RACK = "one_rack"
    NO_RACK = "no_rack"
    REASSIGNING = "reassigning"
    OTHER_LEADER = "other_leader"


@dataclass(frozen=True, slots=True)
class Replicas:
    """Who has a partition. `eligible` have all committed records though they are not in sync; acks=all needs `needed`
    in-sync replicas. `adding` are new and do not have everything yet. `asked` is what the topic's own
    min.insync.replicas asks for, even if there are fewer replicas."""

    key: TopicPartition
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    eligible: tuple[int, ...] = ()
    needed: int = 1
    is_internal: bool = False
    adding: tuple[int, ...] = ()
    asked: int = 1

    @property
    def has_leader(self) -> bool:
        return self.leader >= 0

    @property
    def is_refusing(self) -> bool:
        return self.has_leader and len(self.isr) < self.needed

    def lacks(self, broker: int) -> bool:
        """Whether the broker has a replica that was in sync with its leader and is not any more."""
        return self.has_leader and broker in {*self.replicas} - {*self.isr} - {*self.adding}


@dataclass(frozen=True, slots=True)
class Disk:
    """The disk of a data folder; its bytes are None if they are not known. Records are refused while less than
    `reserve_bytes` is free; `fault` is what the broker says if it cannot use the folder."""

    path: str
    total_bytes: int | None = None
    free_bytes: int | None = None
    reserve_bytes: int = 0
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthFacts:
    """`silent` are alive and have not answered; `new_replicas` is what a topic would get now, and
    `new_offsets_replicas` what that of groups would get, None if no broker has said. `behind` is about how many bytes
    each broker lacks, and `to_copy` those of replicas that are added. `offline` has the logs that brokers should have
    and do not report."""

    controller: int | None
    alive: Collection[int]
    away: Collection[int] = ()
    silent: Collection[int] = ()
    partitions: Sequence[Replicas] = ()
    new_replicas: int | None = None
    new_offsets_replicas: int | None = None
    behind: Mapping[int, int] = field(default_factory=dict)
    to_copy: int = 0
    racks: Mapping[int, str | None] = field(default_factory=dict)
    disks: Mapping[int, Sequence[Disk]] = field(default_factory=dict)
    offline: Mapping[int, Sequence[TopicPartition]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`what` is wrong, what it `means` for users, and the `advice`, with commands that carry it out."""

    kind: Kind
    severity: Severity
    what: str
    means: str
    advice: str
    commands: tuple[str, ...] = ()
    brokers: tuple[int, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()
