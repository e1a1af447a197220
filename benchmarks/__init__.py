"""What Penstock costs: the codec and the log, measured beside their peers and beside the bare system calls."""
