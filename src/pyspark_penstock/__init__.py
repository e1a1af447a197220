"""What registers the format `penstock` with Spark, which looks for modules of this name."""

from penstock.spark.source import PenstockDataSource as DefaultSource

__all__ = ["DefaultSource"]
