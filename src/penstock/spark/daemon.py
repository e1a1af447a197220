"""Spark forks its Python workers from this process, which imports pyspark from where it is installed.

`spark.python.daemon.module=penstock.spark.daemon`: Spark itself puts a zip file first, whose modules every worker has
to compile again, and that is half of the time in which a worker starts.
"""

import os
import sys
from collections.abc import Callable
from importlib.util import find_spec


def prefer_installed() -> None:
    """Leave the zip file out, unless pyspark is nowhere else."""
    before = list(sys.path)
    sys.path[:] = [path for path in before if not path.endswith("pyspark.zip")]
    if find_spec("pyspark") is None:
        sys.path[:] = before


def quietly(worker: Callable[..., int]) -> Callable[..., int]:
    """Wrap a worker so that it ends without a traceback if the JVM closes the connection early, as the JVM does when it
    has enough rows or has cancelled the task."""

    def run(*args: object) -> int:
        try:
            return worker(*args)
        except BrokenPipeError:
            os._exit(1)

    return run


def main() -> None:
    prefer_installed()
    # Nothing else is imported here: workers are forked, and NumPy and pyarrow start threads.
    from pyspark import daemon

    daemon.worker = quietly(daemon.worker)
    daemon.manager()


if __name__ == "__main__":
    main()
