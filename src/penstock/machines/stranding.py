"""The rule that refuses to start fewer brokers than hold partitions: what the others hold would be away."""

from collections import defaultdict
from collections.abc import Set

from penstock.machines.cluster import ClusterImage

# Limits the topics that a refusal names.
_NAMED = 3


def stranding_problem(image: ClusterImage, started: Set[int]) -> str | None:
    """What would be away if only these brokers were started, as a sentence; None if nothing would be."""
    missing: defaultdict[int, int] = defaultdict(int)
    topics: dict[str, None] = {}
    for topic in image.topics.values():
        for partition in topic.partitions:
            for broker_id in partition.replicas:
                if broker_id not in started:
                    missing[broker_id] += 1
                    topics[topic.name] = None
    if not missing:
        return None
    names = sorted(topics)
    listed = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more topics" if len(names) > _NAMED else "")
    brokers = ", ".join(
        f"broker {broker_id} holds {count} partition{'s' * (count != 1)}"
        for broker_id, count in sorted(missing.items())
    )
    return f"{brokers} ({listed}), and would not be started"
