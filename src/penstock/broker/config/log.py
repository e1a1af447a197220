"""These configs govern logs: where they lie, how they are cut into segments, how long they are kept, when they are
flushed.

Most have a topic config of their own (`topic_configs`), for which they are the default.
"""

from typing import Final

from penstock.broker.config.rows import (
    ANY,
    BOOLEAN,
    CLUSTER_WIDE,
    DAY_MS,
    DOUBLE,
    DOUBLE_MAX,
    GIB,
    HOUR_MS,
    IGNORED,
    INT,
    KIB,
    LIST,
    LONG,
    LONG_MAX,
    MIB,
    MINUTE_MS,
    READ_ONLY,
    SECOND_MS,
    SOME_ITEMS,
    STRING,
    WORKS,
    any_of,
    at_least,
    between,
    one_of,
    row,
    works_for,
)
from penstock.broker.config.values import ConfigKey, Range

GZIP_LEVELS: Final = Range(1, 9, also=-1)
LZ4_LEVELS: Final = between(1, 17)
ZSTD_LEVELS: Final = between(-131072, 22)
COMPRESSION_TYPES: Final = one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
TIMESTAMP_TYPES: Final = one_of("CreateTime", "LogAppendTime")
CLEANUP_POLICIES: Final = any_of("compact", "delete")
FLUSHES: Final = one_of("ack", "os")
VALIDATIONS: Final = one_of("header", "records")

# fmt: off
LOG_CONFIGS: Final[tuple[ConfigKey, ...]] = (
    row("log.dirs", LIST, None, SOME_ITEMS, READ_ONLY, WORKS,
        "The data folders."),
    row("log.dir", LIST, None, SOME_ITEMS, READ_ONLY, WORKS,
        "The data folder, if log.dirs is not set. If neither is, `penstock serve` makes one for the user."),
    row("log.dir.failure.timeout.ms", LONG, 30 * SECOND_MS, at_least(1), READ_ONLY, IGNORED,
        "A broker that cannot report a failed data folder for this long stops."),

    row("message.max.bytes", INT, MIB + 12, at_least(0), CLUSTER_WIDE, WORKS,
        "The largest record batch that is accepted, as it is sent, that is compressed."),
    row("compression.type", STRING, "producer", COMPRESSION_TYPES, CLUSTER_WIDE, works_for("producer"),
        "How batches are compressed in the log. `producer` leaves them as they came."),
    row("compression.gzip.level", INT, -1, GZIP_LEVELS, CLUSTER_WIDE, IGNORED,
        "How hard gzip tries; -1 is its own default."),
    row("compression.lz4.level", INT, 9, LZ4_LEVELS, CLUSTER_WIDE, IGNORED,
        "How hard lz4 tries."),
    row("compression.zstd.level", INT, 3, ZSTD_LEVELS, CLUSTER_WIDE, IGNORED,
        "How hard zstd tries."),
    row("log.message.timestamp.type", STRING, "CreateTime", TIMESTAMP_TYPES, CLUSTER_WIDE, WORKS,
        "Whether records keep the producer's time or get that of the append."),
    row("log.message.timestamp.before.max.ms", LONG, LONG_MAX, at_least(0), CLUSTER_WIDE, WORKS,
        "How far a producer's time may lie behind the broker's clock; records that lie further back are refused."),
    row("log.message.timestamp.after.max.ms", LONG, HOUR_MS, at_least(0), CLUSTER_WIDE, WORKS,
        "How far a producer's time may lie ahead of the broker's clock; records that lie further ahead are refused."),

    row("log.segment.bytes", INT, GIB, at_least(MIB), CLUSTER_WIDE, WORKS,
        "A segment that would grow beyond this is closed, and a new one begun."),
    row("log.roll.ms", LONG, None, ANY, CLUSTER_WIDE, WORKS,
        "A segment whose first record is older than this is closed, full or not."),
    row("log.roll.hours", INT, 168, at_least(1), READ_ONLY, WORKS,
        "log.roll.ms in hours, for where that is not set."),
    row("log.roll.jitter.ms", LONG, None, ANY, CLUSTER_WIDE, IGNORED,
        "Up to this much is taken off log.roll.ms at random, so that not all segments close at once."),
    row("log.roll.jitter.hours", INT, 0, at_least(0), READ_ONLY, IGNORED,
        "log.roll.jitter.ms in hours, for where that is not set."),
    row("log.preallocate", BOOLEAN, False, ANY, CLUSTER_WIDE, IGNORED,
        "Whether a segment's file has its full size from the start."),
    row("log.index.interval.bytes", INT, 4 * KIB, at_least(0), CLUSTER_WIDE, WORKS,
        "How many bytes of a segment lie between two entries of its index; above 64 KiB it counts as that."),
    row("log.index.size.max.bytes", INT, 10 * MIB, at_least(4), CLUSTER_WIDE, IGNORED,
        "The largest index of a segment. Penstock's indexes take the room they need."),

    row("log.cleanup.policy", LIST, ("delete",), CLEANUP_POLICIES, CLUSTER_WIDE, WORKS,
        "What becomes of old records: `delete` drops old segments, `compact` keeps the newest record of each key, "
        "which every record then needs. Empty: everything stays."),
    row("log.retention.ms", LONG, None, ANY, CLUSTER_WIDE, WORKS,
        "Segments whose newest record is older than this are deleted; -1 keeps them."),
    row("log.retention.minutes", INT, None, ANY, READ_ONLY, WORKS,
        "log.retention.ms in minutes, for where that is not set."),
    row("log.retention.hours", INT, 168, ANY, READ_ONLY, WORKS,
        "log.retention.ms in hours, for where neither that nor the minutes are set."),
    row("log.retention.bytes", LONG, -1, ANY, CLUSTER_WIDE, WORKS,
        "How large a partition may be before its oldest segments are deleted; -1 sets no limit."),
    row("log.retention.check.interval.ms", LONG, 5 * MINUTE_MS, at_least(1), READ_ONLY, WORKS,
        "How often the broker looks for segments to delete."),
    row("log.segment.delete.delay.ms", LONG, MINUTE_MS, at_least(0), CLUSTER_WIDE, IGNORED,
        "How long the files of a deleted segment stay."),
    row("log.local.retention.ms", LONG, -2, at_least(-2), CLUSTER_WIDE, IGNORED,
        "log.retention.ms for what tiered storage has a copy of; -2 takes that value."),
    row("log.local.retention.bytes", LONG, -2, at_least(-2), CLUSTER_WIDE, IGNORED,
        "log.retention.bytes for what tiered storage has a copy of; -2 takes that value."),

    row("penstock.flush", STRING, "ack", FLUSHES, CLUSTER_WIDE, WORKS,
        "`ack`: a record is on disk before it is acknowledged (acks=all) and readable. `os`: the operating system "
        "writes when it likes, and a power loss takes what it had not written."),
    row("penstock.validate", STRING, "header", VALIDATIONS, CLUSTER_WIDE, WORKS,
        "What is checked of a batch before it is taken. `header`: its checksum and its header; records inside that "
        "cannot be read are stored as they came, and readers stop at them. `records`: every record too, so that what "
        "is stored can be read; costs about a microsecond of CPU a record. Compacted topics always have `records`."),
    row("penstock.disk.reserve.bytes", LONG, -1, at_least(-1), CLUSTER_WIDE, WORKS,
        "With less than this free on the disk of the data, records are refused with a retriable error, and only "
        "internal topics go on; 0 refuses nothing before the disk is full. -1: 256 MiB, or a tenth of the disk if "
        "that is less."),
    row("penstock.scrub.bytes.per.second", LONG, 4 * MIB, at_least(0), CLUSTER_WIDE, WORKS,
        "How much of the closed segments the broker reads in a second to find bits that have changed on the disk; 0 "
        "reads nothing."),
    row("log.flush.interval.messages", LONG, LONG_MAX, at_least(1), CLUSTER_WIDE, IGNORED,
        "After how many records a log is flushed. See penstock.flush."),
    row("log.flush.interval.ms", LONG, None, ANY, CLUSTER_WIDE, IGNORED,
        "How long a record may stay unflushed. See penstock.flush."),
    row("log.flush.scheduler.interval.ms", LONG, LONG_MAX, ANY, READ_ONLY, IGNORED,
        "How often it is checked whether a log must be flushed."),
    row("log.flush.offset.checkpoint.interval.ms", INT, MINUTE_MS, at_least(0), READ_ONLY, IGNORED,
        "How often it is written down how far logs are flushed."),
    row("log.flush.start.offset.checkpoint.interval.ms", INT, MINUTE_MS, at_least(0), READ_ONLY, IGNORED,
        "How often it is written down where logs start."),
    row("num.recovery.threads.per.data.dir", INT, 2, at_least(1), CLUSTER_WIDE, IGNORED,
        "Threads that recover the logs of one data folder after a crash."),

    row("log.cleaner.enable", BOOLEAN, True, ANY, READ_ONLY, WORKS,
        "Whether compaction runs."),
    row("log.cleaner.threads", INT, 1, at_least(0), CLUSTER_WIDE, IGNORED,
        "Threads that compact. Penstock compacts in one process beside the broker."),
    row("log.cleaner.backoff.ms", LONG, 15 * SECOND_MS, at_least(0), CLUSTER_WIDE, WORKS,
        "How long compaction waits when there is nothing to compact."),
    row("log.cleaner.dedupe.buffer.size", LONG, 128 * MIB, ANY, CLUSTER_WIDE, WORKS,
        "Memory in which compaction notes the keys it has seen, about 150 bytes for each. With more keys than fit it "
        "takes several rounds."),
    row("log.cleaner.io.buffer.size", INT, 512 * KIB, at_least(0), CLUSTER_WIDE, IGNORED,
        "Memory for reading and writing while compacting, for all threads."),
    row("log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, ANY, CLUSTER_WIDE, IGNORED,
        "How full compaction's table of keys may become."),
    row("log.cleaner.io.max.bytes.per.second", DOUBLE, DOUBLE_MAX, ANY, CLUSTER_WIDE, WORKS,
        "How much compaction reads and writes in a second."),
    row("log.cleaner.min.cleanable.ratio", DOUBLE, 0.5, between(0, 1), CLUSTER_WIDE, WORKS,
        "How much of a log must be uncompacted before it is compacted again."),
    row("log.cleaner.min.compaction.lag.ms", LONG, 0, at_least(0), CLUSTER_WIDE, WORKS,
        "How long a record stays untouched by compaction."),
    row("log.cleaner.max.compaction.lag.ms", LONG, LONG_MAX, at_least(1), CLUSTER_WIDE, WORKS,
        "How long a record may stay uncompacted, however little there is to compact."),
    row("log.cleaner.delete.retention.ms", LONG, DAY_MS, at_least(0), CLUSTER_WIDE, WORKS,
        "How long compaction keeps the record that marks a key as deleted."),
)
# fmt: on
