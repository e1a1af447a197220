"""Compaction decides what is due, and cleans closed segments."""
