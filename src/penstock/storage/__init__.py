"""Storage keeps logs of record batches in data folders, through `Files`. It knows bytes and offsets, and nothing
else."""
