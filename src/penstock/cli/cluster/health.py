"""`diagnose` says in words what is wrong with a cluster, what that means for its users, and what to do. It decides by
facts alone, asks no broker and prints nothing."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from penstock.cli.cluster import copies, disks, words
from penstock.cli.cluster.findings import Finding, HealthFacts, Kind, Replicas, Severity
from penstock.cli.output import Size, counted

NO_CONTROLLER_MEANS = (
    "Messages go on. Topics are neither created nor changed, and a partition whose leader fails gets no other one."
)
NO_CONTROLLER_ADVICE = (
    "Wait for a session (zookeeper.session.timeout.ms) and look again. If it stays so, see whether the brokers reach "
    "the metadata store: their logs say it, and the metric penstock_metadata_contact."
)
REFUSED_MEANS = "Producers with acks=all are refused (NOT_ENOUGH_REPLICAS) and try again"
AWAY_ADVICE = "Start it, with its number and its folder; its log says why it has stopped. It then catches up by itself."
BEHIND_MEANS = "These partitions survive the loss of fewer disks until it has caught up."
BEHIND_ADVICE = (
    "Wait, and look again: it catches up by itself. If it does not, its log says why, and the metric "
    "penstock_follower_lag_bytes of the leaders whether it becomes less."
)


def diagnose(facts: HealthFacts) -> list[Finding]:
    """All findings, the worst first; none if the cluster is healthy and nothing could be better."""
    found = [
        *_no_controller(facts),
        *_no_leader(facts),
        *_imported(facts),
        *_below_min_isr(facts),
        *disks.folders_offline(facts),
        *disks.logs_offline(facts),
        *disks.disks_full(facts),
        *_away(facts),
        *_silent(facts),
        *_behind(facts),
        *copies.few_replicas(facts),
        *copies.one_rack(facts),
        *copies.reassigning(facts),
        *copies.no_rack(facts),
        *_other_leader(facts),
    ]
    order = list(Severity)
    return sorted(found, key=lambda each: order.index(each.severity))


def is_healthy(findings: Sequence[Finding]) -> bool:
    """Hints are no illness, and neither is what the cluster is doing by itself."""
    return not any(each.severity.is_problem for each in findings)


def summary(facts: HealthFacts, findings: Sequence[Finding]) -> str:
    """The cluster in one line."""
    if not is_healthy(findings):
        return f"not healthy: {counted(sum(each.severity.is_problem for each in findings), 'problem')}"
    topics = len({each.key.topic for each in facts.partitions})
    size = f"{counted(topics, 'topic')} of {counted(len(facts.partitions), 'partition')}" if topics else "no topics"
    several = any(len(each.replicas) > 1 for each in facts.partitions)
    all_in_sync = all(len(each.isr) == len(each.replicas) for each in facts.partitions)
    in_sync = ", all replicas in sync" if several and all_in_sync else ""
    return f"healthy: {counted(len(facts.alive), 'broker')}, {size}{in_sync}"


def _no_controller(facts: HealthFacts) -> Iterator[Finding]:
    if facts.controller is None:
        yield Finding(
            kind=Kind.NO_CONTROLLER,
            severity=Severity.BROKEN,
            what="no broker answers as the controller",
            means=NO_CONTROLLER_MEANS,
            advice=NO_CONTROLLER_ADVICE,
        )


def _no_leader(facts: HealthFacts) -> Iterator[Finding]:
    """One finding for each set of brokers that partitions wait for."""
    waiting: defaultdict[tuple[int, ...], list[Replicas]] = defaultdict(list)
    for each in facts.partitions:
        if not each.has_leader and (each.isr or each.eligible):
            waiting[tuple(sorted(each.isr or each.eligible))].append(each)
    for brokers, partitions in sorted(waiting.items()):
        others = [each for each in partitions if set(each.replicas) & {*facts.alive} - {*brokers}]
        advice = _come_back(brokers, facts)
        if others:
            advice += (
                " If that is impossible, since a disk is lost for good, another replica can lead, and acknowledged "
                "records that it lacks are lost:"
            )
        yield Finding(
            kind=Kind.NO_LEADER,
            severity=Severity.BROKEN,
            what=f"{words.have(partitions, 'no leader')}: {words.names(partitions)}",
            means=f"Producers and consumers wait{words.with_groups(partitions)}, until {words.one_of(brokers)} leads: "
            "only there are all acknowledged records.",
            advice=advice,
            commands=words.limited(f"penstock topic elect {topic} --unclean" for topic in words.topics(others)),
            brokers=brokers,
            partitions=words.keys(partitions),
        )


def _imported(facts: HealthFacts) -> Iterator[Finding]:
    """Partitions of which no replica is known to have everything."""
    waiting = [each for each in facts.partitions if not each.has_leader and not each.isr and not each.eligible]
    if not waiting:
        return
    away = tuple(sorted({broker for each in waiting for broker in each.replicas} - {*facts.alive}))
    if away:
        advice = (
            f"Start {words.brokers(away)}, each with its number and its folder. If that is impossible, since a disk is "
            "lost for good, the replica whose log goes farthest of those that are alive can lead; acknowledged records "
            "that it lacks are lost. None are, if fewer are missing than min.insync.replicas:"
        )
        commands = words.limited(f"penstock topic elect {topic} --unclean" for topic in words.topics(waiting))
    else:
        advice = (
            "Wait, and look again. If it stays so, a broker came with another folder, or cannot open a log: its own "
            "log says it."
        )
        commands = ()
    yield Finding(
        kind=Kind.IMPORTED,
        severity=Severity.BROKEN,
        what=f"{words.have(waiting, 'no leader since an import')}: {words.names(waiting)}",
        means=f"Producers and consumers wait{words.with_groups(waiting)}, until all replicas have come and reported "
        "where their logs end: then the one that has everything leads.",
        advice=advice,
        commands=commands,
        brokers=away,
        partitions=words.keys(waiting),
    )


def _below_min_isr(facts: HealthFacts) -> Iterator[Finding]:
    partitions = [each for each in facts.partitions if each.is_refusing]
    if not partitions:
        return
    missing = tuple(sorted({broker for each in partitions for broker in each.replicas if broker not in each.isr}))
    eligible = sorted({broker for each in partitions for broker in each.eligible})
    may_lead = (
        f" If a leader is lost, too, {words.brokers(eligible)} may lead: nothing is missing there." if eligible else ""
    )
    yield Finding(
        kind=Kind.BELOW_MIN_ISR,
        severity=Severity.BROKEN,
        what=f"{words.have(partitions, 'too few in-sync replicas for acks=all')}: {words.names(partitions)}",
        means=f"{REFUSED_MEANS}{words.with_groups(partitions)}. What was acknowledged can be read.{may_lead}",
        advice=_come_back(missing, facts),
        brokers=missing,
        partitions=words.keys(partitions),
    )


def _away(facts: HealthFacts) -> Iterator[Finding]:
    for broker in sorted(facts.away):
        held = [each for each in facts.partitions if broker in each.replicas]
        if held:
            means = f"{counted(len(held), 'partition')} had a replica there: one that protects less now, or waits."
        else:
            means = "It has no replica of any partition, so that no client misses it."
        yield Finding(
            kind=Kind.BROKER_AWAY,
            severity=Severity.AT_RISK if held else Severity.HINT,
            what=f"broker {broker} is away",
            means=means,
            advice=AWAY_ADVICE,
            brokers=(broker,),
            partitions=words.keys(held),
        )


def _silent(facts: HealthFacts) -> Iterator[Finding]:
    for broker in sorted(facts.silent):
        yield Finding(
            kind=Kind.BROKER_SILENT,
            severity=Severity.AT_RISK,
            what=f"broker {broker} is alive and does not answer from here",
            means="Clients on this machine cannot use what it leads.",
            advice="See whether its address (penstock cluster brokers) can be reached from here, and whether it is "
            "overloaded.",
            brokers=(broker,),
        )


def _behind(facts: HealthFacts) -> Iterator[Finding]:
    for broker in sorted({*facts.alive} - {*facts.away}):
        # What it does not serve at all is a finding of its own.
        offline = {*facts.offline.get(broker, ())}
        partitions = [each for each in facts.partitions if each.lacks(broker) and each.key not in offline]
        if not partitions:
            continue
        size = facts.behind.get(broker, 0)
        about = f", about {Size(size)} behind" if size else ""
        yield Finding(
            kind=Kind.BROKER_BEHIND,
            severity=Severity.AT_RISK,
            what=f"broker {broker} is not in sync in {counted(len(partitions), 'partition')}{about}: "
            f"{words.names(partitions)}",
            means=BEHIND_MEANS,
            advice=BEHIND_ADVICE,
            brokers=(broker,),
            partitions=words.keys(partitions),
        )


def _other_leader(facts: HealthFacts) -> Iterator[Finding]:
    partitions = [
        each
        for each in facts.partitions
        if each.has_leader and each.leader != each.replicas[0] and each.replicas[0] in {*each.isr} & {*facts.alive}
    ]
    if partitions:
        yield Finding(
            kind=Kind.OTHER_LEADER,
            severity=Severity.HINT,
            what=f"{words.have(partitions, 'another leader than the first replica')}: {words.names(partitions)}",
            means="Brokers may have unequal shares of the work, as after a restart.",
            advice="Leadership returns by itself within minutes (auto.leader.rebalance.enable), or at once with:",
            commands=("penstock topic elect --all-topics",),
            partitions=words.keys(partitions),
        )


def _come_back(brokers: Sequence[int], facts: HealthFacts) -> str:
    """What to do about brokers that are missed: those that are away are started, others come by themselves."""
    away = [broker for broker in brokers if broker not in facts.alive]
    here = [broker for broker in brokers if broker in facts.alive]
    parts = []
    if away:
        parts.append(
            f"Start {words.brokers(away)}, each with its number and its folder."
            if len(away) > 1
            else f"Start {words.brokers(away)}, with its number and its folder."
        )
    if here:
        parts.append(
            f"Wait for {words.brokers(here)}: alive, and catching up, or waiting for another folder, as the log says."
        )
    return " ".join(parts)
