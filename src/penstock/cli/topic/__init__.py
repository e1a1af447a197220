"""`penstock topic` makes, shows, changes and deletes topics."""
