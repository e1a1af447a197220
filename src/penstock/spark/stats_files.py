"""Keeps the former address of `penstock.spark.statistics.files`, which guides have named."""

from penstock.spark.statistics.files import write_tables

__all__ = ["write_tables"]
