"""Registers the format `penstock` with Spark, which imports packages whose names begin with `pyspark_`."""

from penstock.spark.source.source import PenstockDataSource as DefaultSource

__all__ = ["DefaultSource"]
