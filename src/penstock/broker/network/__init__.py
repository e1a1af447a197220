"""This room serves clients' connections: it accepts, reads and answers, and bounds how much of it at a time."""
