"""Statistics of two topics, made by hand, for tests of what becomes of them."""

from penstock.spark.statistics.audit import Finding, Kind
from penstock.spark.statistics.buckets import Distribution
from penstock.spark.statistics.run import AuditStats, Bar, HourStats, KeyStats, PartitionStats, Stats, TopicStats
from penstock.spark.statistics.times import TimeStats

HOUR_MS = 3_600_000
NOON_MS = 472_222 * HOUR_MS

ORDERS = TopicStats(
    topic="orders",
    messages=30,
    bytes=3000,
    keys=2,
    without_key=10,
    sizes=Distribution(30, 10, 100.0, 90, 300, 400, 420),
    latency_ms=Distribution(28, 0, 12.5, 8, 40, 45, 50),
    ahead=2,
    size_bars=(Bar(10, 11, 5), Bar(90, 91, 20), Bar(400.0, 421.0, 5)),
    latency_bars=(Bar(0, 1, 4), Bar(8, 9, 14), Bar(50, 51, 10)),
)
EMPTY = TopicStats("nothing", 0, 0, 0, 0, None, None, 0, (), ())


def made(*topics: TopicStats) -> Stats:
    return Stats(
        at_ms=NOON_MS + 3 * HOUR_MS,
        since_ms=None,
        until_ms=None,
        topics=topics or (EMPTY, ORDERS),
        partitions=(
            PartitionStats("orders", 0, 20, 2000, 4 / 3),
            PartitionStats("orders", 1, 10, 1000, 2 / 3),
        ),
        hours=(
            HourStats("orders", 0, None, 1, 10, 10, 10),
            HourStats("orders", 0, NOON_MS, 19, 1990, 20, 420),
            HourStats("orders", 1, NOON_MS, 4, 500, 20, 300),
            HourStats("orders", 1, NOON_MS + HOUR_MS, 6, 500, 20, 300),
        ),
        keys=(KeyStats("orders", b"ada", 15, 1500, 0.5), KeyStats("orders", b"\xff\x00", 5, 500, 1 / 6)),
        audits=(
            AuditStats("orders", 0, 18, 2, 1, 3, 4, 0, 0, (Finding(Kind.DUPLICATE, 7, 0, 12, 9, 3),)),
            AuditStats("orders", 1, 10, 0, 1, 0, 0, 5, 5, (Finding(Kind.REMOVED, 7, 0, 5, 5, 5),)),
        ),
        times=(
            TimeStats("orders", NOON_MS, 1000, 23),
            TimeStats("orders", NOON_MS + HOUR_MS, 1000, 6),
        ),
        cluster="127.0.0.1:9092",
    )
