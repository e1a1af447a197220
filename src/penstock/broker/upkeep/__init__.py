"""This room does what the broker does by itself: flushing, retention, compaction, scrubbing."""
