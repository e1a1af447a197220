"""The process that Spark forks its Python workers from, which imports pyspark where it is installed.

`spark.python.daemon.module=penstock.spark.daemon`: Spark itself puts a zip file first, whose modules every worker has
to compile again, and that is half of the time in which a worker starts.
"""

import sys
from importlib.util import find_spec


def prefer_installed() -> None:
    """Leave the zip file out, unless pyspark is nowhere else."""
    before = list(sys.path)
    sys.path[:] = [path for path in before if not path.endswith("pyspark.zip")]
    if find_spec("pyspark") is None:
        sys.path[:] = before


def main() -> None:
    prefer_installed()
    # Nothing else is imported here: workers are forked, and NumPy and pyarrow start threads.
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
