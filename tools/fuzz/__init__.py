"""`make fuzz` runs everything that reads bytes from outside under a coverage-guided fuzzer (atheris)."""
