"""These rules of health say which disks fail, and which are full."""

from collections.abc import Iterator, Mapping

from penstock.cli.cluster import words
from penstock.cli.cluster.findings import Disk, Finding, HealthFacts, Kind, Severity
from penstock.cli.output import Size, counted
from penstock.client.metadata import named

NEARLY_FULL = 0.05
"""The share of a disk, above its reserve, below which it is nearly full. The alarm goes by it, too."""

FULL_MEANS = (
    "Records are refused there (KAFKA_STORAGE_ERROR); producers try again until their time is up "
    "(delivery.timeout.ms). What was acknowledged can be read."
)
NEARLY_FULL_MEANS = (
    "All is served. When less than the reserve is free (penstock.disk.reserve.bytes), records are refused "
    "(KAFKA_STORAGE_ERROR)."
)
MAKE_ROOM = (
    "Delete records or topics, keep them for a shorter time (retention.ms, retention.bytes), or enlarge the disk. A "
    "broker that was full takes records again by itself."
)
OFFLINE_ADVICE = (
    "The broker's log names the file and says why it cannot be used; see whether the disk fails, too (dmesg). A "
    "restart tries again. If the disk is lost, start the broker with an empty folder and its number: it copies "
    "everything that other brokers have."
)


def folders_offline(facts: HealthFacts) -> Iterator[Finding]:
    for broker, disks in sorted(facts.disks.items()):
        for disk in disks:
            if disk.fault is not None:
                yield Finding(
                    kind=Kind.FOLDER_OFFLINE,
                    severity=Severity.BROKEN,
                    what=f"broker {broker} cannot use its data folder {disk.path}: {disk.fault}",
                    means="What it leads there is neither written nor read, and its replicas protect nothing.",
                    advice=OFFLINE_ADVICE,
                    brokers=(broker,),
                )


def logs_offline(facts: HealthFacts) -> Iterator[Finding]:
    leaders = {each.key: each.leader for each in facts.partitions}
    for broker, offline in sorted(facts.offline.items()):
        if not offline:
            continue
        leads = any(leaders.get(key) == broker for key in offline)
        yield Finding(
            kind=Kind.LOG_OFFLINE,
            severity=Severity.BROKEN if leads else Severity.AT_RISK,
            what=f"broker {broker} does not serve {counted(len(offline), 'log')} that it should have: {named(offline)}",
            means="Producers and consumers of what it leads are refused (KAFKA_STORAGE_ERROR), and try again."
            if leads
            else "Others lead these partitions, which survive the loss of fewer disks.",
            advice=f"A broker that was started just now opens them one by one: look again. {OFFLINE_ADVICE}",
            brokers=(broker,),
            partitions=tuple(offline),
        )


def disks_full(facts: HealthFacts) -> Iterator[Finding]:
    """One finding for all brokers: those of one machine may share a disk."""
    full: dict[int, Disk] = {}
    nearly_full: dict[int, Disk] = {}
    for broker, disks in sorted(facts.disks.items()):
        for disk in disks:
            if disk.free_bytes is None or disk.total_bytes is None:
                continue
            if disk.free_bytes < disk.reserve_bytes:
                full.setdefault(broker, disk)
            elif disk.free_bytes < disk.reserve_bytes + NEARLY_FULL * disk.total_bytes:
                nearly_full.setdefault(broker, disk)
    if full:
        yield _without_room(full, Kind.DISK_FULL, Severity.BROKEN, is_what="full", means=FULL_MEANS)
    if nearly_full:
        kind, severity = Kind.DISK_NEARLY_FULL, Severity.AT_RISK
        yield _without_room(nearly_full, kind, severity, is_what="nearly full", means=NEARLY_FULL_MEANS)


def _without_room(disks: Mapping[int, Disk], kind: Kind, severity: Severity, *, is_what: str, means: str) -> Finding:
    free = "; ".join(
        f"broker {broker} has {Size(disk.free_bytes or 0)} of {Size(disk.total_bytes or 0)} free, of which "
        f"{Size(disk.reserve_bytes)} are its reserve"
        for broker, disk in disks.items()
    )
    return Finding(
        kind=kind,
        severity=severity,
        what=f"{'the disk' if len(disks) == 1 else 'the disks'} of {words.brokers(list(disks))} "
        f"{'is' if len(disks) == 1 else 'are'} {is_what}: {free}",
        means=means,
        advice=MAKE_ROOM,
        brokers=tuple(disks),
    )
