"""`penstock cluster` looks at the brokers of a cluster."""
