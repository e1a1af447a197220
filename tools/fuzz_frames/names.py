"""Lists what the broker of the stage has, by the names that mutated requests ask for it with."""

from typing import Final

TOPICS: Final = tuple(f"topic-{number}" for number in range(10))
COMPACTED: Final = TOPICS[8]
STAMPED: Final = TOPICS[9]
"""Whose records get the time at which they are appended."""
PARTITIONS: Final = 3
TOPIC_IDS: Final = tuple(b"fuzzing\x01" + bytes([0] * 7 + [number]) for number in range(len(TOPICS)))
GROUPS: Final = tuple(f"group-{number}" for number in range(4))
"""Each has one member that has its assignment, and committed offsets; the last has offsets alone."""
MEMBER: Final = "honest-stage"
GENERATION: Final = 1

HONEST_TOPIC: Final = "topic.of.the.honest.client"
HONEST_TOPIC_ID: Final = b"honesty\x01" + bytes(8)
HONEST_GROUP: Final = "group.of.the.honest.client"
HONEST_MEMBER: Final = "honest-member"
