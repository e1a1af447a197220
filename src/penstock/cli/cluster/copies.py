"""These rules of health say whether partitions have enough replicas, and where these do not fail together."""

from collections.abc import Iterator, Sequence

from penstock.cli.cluster import words
from penstock.cli.cluster.findings import Finding, HealthFacts, Kind, Replicas, Severity
from penstock.cli.output import Size, counted


def reassigning(facts: HealthFacts) -> Iterator[Finding]:
    """No problem: what was there protects as before until the new replicas have everything."""
    partitions = [each for each in facts.partitions if each.adding]
    if partitions:
        brokers = tuple(sorted({broker for each in partitions for broker in each.adding}))
        about = f", about {Size(facts.to_copy)} to copy" if facts.to_copy else ""
        yield Finding(
            kind=Kind.REASSIGNING,
            severity=Severity.UNDER_WAY,
            what=f"{counted(len(partitions), 'partition')} {'gets' if len(partitions) == 1 else 'get'} more replicas, "
            f"on {words.brokers(brokers)}{about}: {words.names(partitions)}",
            means="They are written and read meanwhile, and protected as before.",
            advice="Look again: it ends by itself, if these brokers are alive.",
            brokers=brokers,
            partitions=words.keys(partitions),
        )


def few_replicas(facts: HealthFacts) -> Iterator[Finding]:
    """A topic has too few replicas if it has fewer than was asked for it: by its own min.insync.replicas, by its other
    partitions, or of the topic of groups by the configs. One that has what it was made with is right as it is; that a
    new one would get more is a hint."""
    most: dict[str, int] = {}
    for each in facts.partitions:
        most[each.key.topic] = max(most.get(each.key.topic, 0), len(each.replicas))
    short: list[Replicas] = []
    own: list[Replicas] = []
    fewer: list[Replicas] = []
    for each in facts.partitions:
        count = len(each.replicas)
        if each.is_internal and count < (facts.new_offsets_replicas or 0):
            own.append(each)
        elif count < max(each.asked, most[each.key.topic]):
            short.append(each)
        elif not each.is_internal and count < (facts.new_replicas or 0):
            fewer.append(each)
    if short:
        counts = {topic: max(each.asked, most[topic]) for each in short if (topic := each.key.topic)}
        yield Finding(
            kind=Kind.FEW_REPLICAS,
            severity=Severity.AT_RISK,
            what=f"{_topics_have(short)} fewer replicas than min.insync.replicas or other partitions of the topic ask "
            f"for: {words.first_topics(short)}",
            means=_loses(short, "messages"),
            advice=_give(short),
            commands=_raising(counts),
            partitions=words.keys(short),
        )
    if own:
        yield Finding(
            kind=Kind.FEW_REPLICAS,
            severity=Severity.AT_RISK,
            what=f"{_topics_have(own)} fewer replicas than it is to have, which is {facts.new_offsets_replicas}: "
            f"{words.first_topics(own)}",
            means=_loses(own, "what groups have committed"),
            advice="The cluster raises it by itself: look again in a while.",
            partitions=words.keys(own),
        )
    if fewer:
        assert facts.new_replicas is not None
        yield Finding(
            kind=Kind.FEWER_THAN_DEFAULT,
            severity=Severity.HINT,
            what=f"{_topics_have(fewer)} fewer replicas than a new one gets now, which is {facts.new_replicas}: "
            f"{words.first_topics(fewer)}",
            means=_loses(fewer, "messages"),
            advice=f"If that is not on purpose: {_give(fewer)[0].lower()}{_give(fewer)[1:]}",
            commands=_raising(dict.fromkeys(words.topics(fewer), facts.new_replicas)),
            partitions=words.keys(fewer),
        )


def one_rack(facts: HealthFacts) -> Iterator[Finding]:
    """A broker without a rack is a rack of its own, as for the placement of replicas."""
    racks = {rack for rack in facts.racks.values() if rack is not None}
    if len(racks) < 2:
        return
    together = [
        each
        for each in facts.partitions
        if len(each.replicas) > 1 and len(found := {facts.racks.get(broker) for broker in each.replicas}) == 1
        if None not in found
    ]
    if together:
        raised = {each.key.topic: len(each.replicas) + 1 for each in together if not each.is_internal}
        possible = {topic: count for topic, count in raised.items() if count <= len(facts.alive)}
        yield Finding(
            kind=Kind.ONE_RACK,
            severity=Severity.AT_RISK,
            what=f"{words.have(together, 'all replicas in one rack')}: {words.names(together)}",
            means="The loss of that rack takes them away, and their messages if its disks are lost.",
            advice="One more replica goes to another rack:" if possible else "Add a broker in another rack.",
            commands=_raising(possible),
            partitions=words.keys(together),
        )


def no_rack(facts: HealthFacts) -> Iterator[Finding]:
    without = tuple(sorted(broker for broker, rack in facts.racks.items() if rack is None))
    if without and len(without) < len(facts.racks):
        yield Finding(
            kind=Kind.NO_RACK,
            severity=Severity.HINT,
            what=f"{words.brokers(without)} {'has' if len(without) == 1 else 'have'} no rack, and others have",
            means="Each counts as a rack of its own, so that replicas may share one.",
            advice="Set broker.rack, and restart.",
            brokers=without,
        )


def _topics_have(partitions: Sequence[Replicas]) -> str:
    count = len(words.topics(partitions))
    return f"{counted(count, 'topic')} {'has' if count == 1 else 'have'}"


def _loses(partitions: Sequence[Replicas], what: str) -> str:
    return f"The loss of {counted(min(len(each.replicas) for each in partitions), 'disk')} loses {what}."


def _give(partitions: Sequence[Replicas]) -> str:
    return "Give it more:" if len(words.topics(partitions)) == 1 else "Give them more:"


def _raising(counts: dict[str, int]) -> tuple[str, ...]:
    return words.limited(
        f"penstock topic alter {topic} --replication-factor {count}" for topic, count in sorted(counts.items())
    )
