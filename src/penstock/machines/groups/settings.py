"""Holds what an operator may set about groups; the names and defaults are Kafka's."""

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class GroupSettings:
    """The config that each of these comes from is its name with dots, after `group.`, `offsets.` or `offset.`."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 0x7FFF_FFFF
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    offsets_retention_check_interval_ms: int = 600_000
    offsets_commit_timeout_ms: int = 5_000
    offset_metadata_max_bytes: int = 4_096
    max_record_bytes: int = 1_048_588
    """The largest record of a group, and the largest decision: `message.max.bytes`, but 1 MiB at least."""
