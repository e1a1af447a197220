"""Keeps the former address of `penstock.spark.statistics.topic`, which guides have named."""

from penstock.spark.statistics.topic import publish_stats

__all__ = ["publish_stats"]
