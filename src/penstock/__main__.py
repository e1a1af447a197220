"""`python -m penstock` is the command `penstock`, for a process that knows its interpreter and not the scripts."""

from penstock.cli.main import main

main()
