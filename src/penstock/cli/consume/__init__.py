"""`penstock consume` prints the messages of topics."""
