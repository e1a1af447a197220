"""Writes the error table of a cluster of brokers 0, 1 and 2, new and empty: `python -m tools.error_table --bootstrap
HOST:PORT --signal 'kill -{signal} COMMAND {node}' --server NAME --to FILE`, with the address of broker 0."""

import argparse
import asyncio
import logging
import sys
from pathlib import Path

from tools.clients.processes import OutsideError
from tools.error_table.control import Signals
from tools.error_table.walk import walk


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.error_table", description="Write a cluster's error table.")
    parser.add_argument("--bootstrap", required=True, help="the address of broker 0, which is never stopped")
    parser.add_argument(
        "--signal",
        required=True,
        help="a command of the shell that sends {signal} (TERM, STOP, CONT) to broker {node}, and for TERM waits until "
        "it is gone",
    )
    parser.add_argument("--server", required=True, help='such as "Apache Kafka 4.3.1"')
    parser.add_argument("--to", type=Path, required=True, help="the file that is written")
    options = parser.parse_args()
    # Clients warn of each error that they meet, and errors are what they are to meet.
    logging.basicConfig(level=logging.CRITICAL)
    try:
        asyncio.run(walk(options.bootstrap, Signals(options.signal), options.server)).write(options.to)
    except OutsideError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
