"""Measures the pipeline on Spark beside Spark's own sources and writers."""
