"""A log keeps one partition on disk: segments, their indexes, recovery and retention."""
