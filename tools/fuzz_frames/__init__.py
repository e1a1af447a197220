"""The second part of `make fuzz` sends mutated requests of real clients, one at a time, to a broker in the same
process."""
