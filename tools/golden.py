"""Write a golden data folder: one of each kind of file of the present format, to be opened by every later version.

    python -m tools.golden tests/formats/golden/format-2

Made once for each released format, and from then on only read. The content is the same at every run.
"""

import base64
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from penstock.protocol.batch import split
from penstock.protocol.compression import Codec
from penstock.protocol.records import NewRecord, build, iterate
from penstock.storage.data_directory import DataDirectory
from penstock.storage.files import RealFiles
from penstock.storage.log.log import Log, LogConfig

START_MS = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=1200, index_interval_bytes=400, retention_ms=-1, segment_ms=1 << 60)
IDENTITY = bytes(range(16))
FOLDER_ID = IDENTITY.hex()
SNAPSHOT = b"what was known about producers"
BROKER_EPOCH = 7


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    target = Path(sys.argv[1])
    if target.exists():
        sys.exit(f"{target} exists: a golden folder is written once")
    write(target)
    print(f"written to {target}")


def write(target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    folder = target / "data"
    directory = DataDirectory(str(folder), RealFiles(), cluster_id="golden-cluster", folder_id=FOLDER_ID)
    payments = directory.log("payments", 0, CONFIG, identity=IDENTITY)
    fill(payments, batches=30)
    payments.save_snapshot(SNAPSHOT, version=1)
    payments.advance_start(17)
    events = directory.log("events.v2", 11, CONFIG, identity=IDENTITY[::-1])
    fill(events, batches=4)
    described = {"payments-0": describe(payments), "events.v2-11": describe(events)}
    directory.close(broker_epoch=BROKER_EPOCH)
    (target / "expected.json").write_text(json.dumps(described, indent=1) + "\n")


def fill(log: Log, batches: int) -> None:
    for number in range(batches):
        records = [
            NewRecord(
                value=None if (number + i) % 7 == 0 else f"payment {number}.{i} of {'x' * 40}".encode(),
                key=None if number % 5 == 0 else b"customer-%d" % (number % 3),
                headers=(("trace", b"%d" % number), ("empty", None)) if number % 4 == 0 else (),
                timestamp=START_MS + 1000 * number + i,
            )
            for i in range(1 + number % 3)
        ]
        batch = build(records, codec=Codec(number % 5))
        log.append(split(batch), leader_epoch=3 if number < 12 else 5, now_ms=START_MS + 1000 * number)


def describe(log: Log) -> dict[str, Any]:
    """Everything that can be read of a log, as JSON."""
    records = []
    offset = log.start_offset
    while (found := log.read(offset, max_bytes=1 << 20)) is not None:
        with found:
            data = found.read()
        for header, view in split(data):
            records += [
                {
                    "offset": record.offset,
                    "timestamp": record.timestamp,
                    "key": text(record.key),
                    "value": text(record.value),
                    "headers": [[name, text(value)] for name, value in record.headers],
                    "codec": header.codec.name,
                    "leader_epoch": header.leader_epoch,
                }
                for record in iterate(view)
            ]
            offset = header.next_offset
    snapshot = log.latest_snapshot(version=1)
    return {
        "start": log.start_offset,
        "end": log.end_offset,
        "epochs": [list(entry) for entry in log.epochs.entries],
        "segments": [segment.base_offset for segment in log.segments],
        "snapshot": [snapshot[0], base64.b64encode(snapshot[1]).decode()] if snapshot else None,
        "records": records,
    }


def text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


if __name__ == "__main__":
    main()
