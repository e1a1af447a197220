"""Keeps the former address of `penstock.spark.statistics.plots`, which guides have named."""

from penstock.spark.statistics.plots import draw_plots

__all__ = ["draw_plots"]
