"""`make fuzz`: everything that reads bytes from outside, under a coverage-guided fuzzer (atheris)."""
