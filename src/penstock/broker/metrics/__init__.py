"""What a broker counts while it works, and the page on which Prometheus reads it."""
