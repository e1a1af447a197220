"""This room counts what a broker does, and serves the page on which Prometheus reads it."""
