"""The statistics count what topics carry, in a job on Spark."""
