"""`python -m tools.zookeeper [--nodes 3] [--port 2181]` runs ZooKeeper on loopback until Ctrl-C."""

import argparse
import signal
import sys

from tools.clients.processes import OutsideError
from tools.zookeeper.ensemble import Ensemble, install


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.zookeeper", description=__doc__)
    parser.add_argument("--nodes", type=int, choices=(1, 3), default=3, help="servers of the ensemble (%(default)s)")
    parser.add_argument("--port", type=int, default=2181, help="port of the first; others follow it (%(default)s)")
    parser.add_argument("--install", action="store_true", help="only fetch what it needs, as far as it is not there")
    chosen = parser.parse_args()
    # A service that is asked to stop ends as with Ctrl-C, which Python ignores in the background of a shell.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    try:
        install()
        if not chosen.install:
            with Ensemble(nodes=chosen.nodes, port=chosen.port) as ensemble:
                print(f"ZooKeeper serves at {ensemble.connect}; Ctrl-C ends it, and deletes what it holds", flush=True)
                signal.pause()
    except KeyboardInterrupt:
        pass
    except OutsideError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
