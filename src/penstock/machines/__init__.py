"""The machines are the rules, without clock, socket, disk or chance: time comes in as `now_ms`, ids and random numbers
as arguments."""
