"""This package connects a client to a cluster: connections, leaders, coordinators, security and retries."""
