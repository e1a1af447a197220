"""A Spark session that is set up for this source: `penstock.spark.session()`."""

import os
import sys
from typing import TYPE_CHECKING, Final

from penstock.spark.java import ensure_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Final = {
    # A micro-batch writes two small files and lists folders; Spark's default does that through a layer that costs more
    # than the rest of the batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # Rows go from Python to the JVM through these; no port, no firewall, and less work for the kernel.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "penstock.spark.daemon",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
"""What a session of ours has set, for those who build their own or give it to spark-submit."""


def session(master: str = "local[*]", *, app_name: str = "penstock", **conf: object) -> "SparkSession":
    """The session of this process, started if there is none, with `SETTINGS` and what else is given:
    `session("local[2]", **{"spark.driver.memory": "4g"})`.

    Java is found as `penstock.spark.java` says, and tasks run on the Python that runs this.
    """
    from pyspark.sql import SparkSession

    ensure_java()
    # Else the workers run whatever python3 the PATH has, which may lack pyarrow and penstock.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName(app_name)
    for name, value in (SETTINGS | conf).items():
        builder = builder.config(name, str(value).lower() if isinstance(value, bool) else str(value))
    return builder.getOrCreate()
