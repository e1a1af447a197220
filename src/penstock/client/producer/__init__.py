"""The producer takes messages, sends them in batches, and reports what became of each."""
