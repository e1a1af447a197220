"""`session` starts a Spark session that is set up for this source."""

import os
import sys
from typing import TYPE_CHECKING, Final

from penstock.spark.java import ensure_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Final = {
    # A micro-batch writes two small files and lists folders. Spark's default manager costs more for that than the rest
    # of the batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # Rows go from Python to the JVM through these: they need no port and no firewall, and less work of the kernel.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "penstock.spark.daemon",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
"""The settings of our sessions, for users who build a session themselves or run spark-submit."""


def session(master: str = "local[*]", *, app_name: str = "penstock", **conf: object) -> "SparkSession":
    """Return the session of this process, started if there is none, with `SETTINGS` and the settings that are given:
    `session("local[2]", **{"spark.driver.memory": "4g"})`.

    Java is found as `penstock.spark.java` says, and tasks run on the Python that runs this.
    """
    from pyspark.sql import SparkSession

    ensure_java()
    # Otherwise the workers run the python3 of the PATH, which may lack pyarrow and penstock.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName(app_name)
    for name, value in (SETTINGS | conf).items():
        builder = builder.config(name, str(value).lower() if isinstance(value, bool) else str(value))
    return builder.getOrCreate()
