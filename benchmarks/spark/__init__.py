"""What the pipeline on Spark does beside Spark's own sources and writers."""
