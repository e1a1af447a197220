"""Topic settings are what a partition needs of its topic's configs, looked up once and not at every request."""

from dataclasses import dataclass

from penstock.storage.log.log import LogConfig


@dataclass(slots=True, frozen=True)
class TopicSettings:
    log: LogConfig
    max_message_bytes: int
    log_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    deletes_old: bool
    # Whether every record needs a key, since compaction goes by keys.
    needs_keys: bool
    # Whether its records are looked at: for their keys, or because a batch that cannot be read is refused
    # (`penstock.validate`).
    looks_inside: bool
    min_insync_replicas: int
    # Whether a record counts, for acks=all and for readers, only once it is flushed (`penstock.flush`).
    flush_before_commit: bool
    # The group whose committed offset retention does not pass (`penstock.retention.hold.group`), or none.
    hold_group: str = ""
