"""A session with the settings that we ship, and nothing of Spark before it is used."""

import subprocess
import sys
from typing import TYPE_CHECKING, Any

from penstock.spark import SETTINGS, session
from tests.spark.conftest import CONF, MASTER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_session_has_our_settings_and_those_of_the_user(spark: "SparkSession") -> None:
    assert {name: spark.conf.get(name) for name in SETTINGS} == SETTINGS
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.sparkContext.master == MASTER


def test_there_is_one_session_in_a_process(spark: "SparkSession") -> None:
    conf: dict[str, Any] = {"spark.sql.shuffle.partitions": 3, "spark.sql.ansi.enabled": True}
    again = session(**conf)

    assert again.sparkContext is spark.sparkContext
    assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"
    session(**CONF)


def test_workers_run_the_python_that_runs_this(spark: "SparkSession") -> None:
    """From an unactivated venv Spark would start the system's python3, which has no pyarrow."""

    def tell(_: int) -> tuple[str, str]:
        import pyspark

        return sys.executable, pyspark.__file__

    ((executable, location),) = spark.sparkContext.parallelize([0], 1).map(tell).collect()

    assert executable == sys.executable
    assert "pyspark.zip" not in location


def test_nothing_of_spark_is_imported_before_it_is_used() -> None:
    program = (
        "import sys; import penstock.spark; from penstock.spark import session, publish_progress, find_java; "
        "print(sorted({'pyspark', 'pyarrow', 'numpy', 'numba', 'deltalake'} & set(sys.modules)), "
        "'session' in dir(penstock.spark), hasattr(penstock.spark, 'nothing'))"
    )

    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert told.strip() == "[] True False"


def test_the_format_is_registered_by_the_name_of_its_module() -> None:
    from pyspark.sql.datasource import DataSource

    import pyspark_penstock

    assert issubclass(pyspark_penstock.DefaultSource, DataSource)
    assert pyspark_penstock.DefaultSource.name() == "penstock"
