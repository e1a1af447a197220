"""The benchmarks measure what Penstock costs: the codec and the log, beside their peers and beside the bare system
calls."""
