"""The data pipeline runs on Spark: a source and a sink for PySpark, archives, replays and statistics.

Nothing of Spark is imported before it is used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.spark.java import find_java
    from penstock.spark.lake.archiving import archive
    from penstock.spark.lake.replaying import replay
    from penstock.spark.lake.unified import read
    from penstock.spark.sessions import SETTINGS, session
    from penstock.spark.source.metrics import TopicProgress, progress
    from penstock.spark.source.publishing import publish_progress
    from penstock.spark.statistics.run import stats

__all__ = [
    "session",
    "archive",
    "replay",
    "read",
    "stats",
    "SETTINGS",
    "publish_progress",
    "progress",
    "TopicProgress",
    "find_java",
]

_MODULES = {
    "session": "sessions",
    "SETTINGS": "sessions",
    "publish_progress": "source.publishing",
    "progress": "source.metrics",
    "TopicProgress": "source.metrics",
    "find_java": "java",
    "archive": "lake.archiving",
    "replay": "lake.replaying",
    "read": "lake.unified",
    "stats": "statistics.run",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
