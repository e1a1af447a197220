"""The data pipeline on Spark: a source and a sink for PySpark, archives, replays and statistics.

Nothing of Spark is imported before it is used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.spark.archiving import archive
    from penstock.spark.java import find_java
    from penstock.spark.publishing import publish_progress
    from penstock.spark.replaying import replay
    from penstock.spark.sessions import SETTINGS, session
    from penstock.spark.statistics import stats
    from penstock.spark.unified import read

__all__ = ["session", "archive", "replay", "read", "stats", "SETTINGS", "publish_progress", "find_java"]

_MODULES = {
    "session": "sessions",
    "SETTINGS": "sessions",
    "publish_progress": "publishing",
    "find_java": "java",
    "archive": "archiving",
    "replay": "replaying",
    "read": "unified",
    "stats": "statistics",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
