"""Measures what penstock.validate=records costs beside header: CPU of the broker, and of the check alone."""

from functools import partial
from itertools import cycle, islice
from typing import Final

from benchmarks.batches import KB, MB
from benchmarks.measure import Case, Step, repeat, take_turns
from benchmarks.report import Row, Table
from benchmarks.stage import running
from benchmarks.systems import Penstock
from benchmarks.wire import measure_all
from benchmarks.workloads import Workload
from penstock.protocol.batch import HEADER, read_header
from penstock.protocol.compression import Codec
from penstock.protocol.record_checks import check_records, payload
from penstock.protocol.records import NewRecord, build

ROUNDS: Final = 5
HEADER_ALONE: Final = "header"
RECORDS: Final = "records"


def _workload(name: str, *, message_bytes: int, batch_bytes: int, volume: int) -> Workload:
    options = {"message_bytes": message_bytes, "batch_bytes": batch_bytes, "connections": 4, "in_flight": 4, "acks": 1}
    return Workload(name, "produce", options, volume)


WORKLOADS: Final = (
    Workload("one message of 1 KB", "produce", {"connections": 10, "in_flight": 16, "acks": 1}, 30 * MB),
    _workload("16 KB of 1 KB messages", message_bytes=KB, batch_bytes=16 * KB, volume=150 * MB),
    _workload("16 KB of 100 B messages", message_bytes=100, batch_bytes=16 * KB, volume=100 * MB),
    _workload("1 MB of 1 KB messages", message_bytes=KB, batch_bytes=MB, volume=300 * MB),
    _workload("1 MB of 100 B messages", message_bytes=100, batch_bytes=MB, volume=100 * MB),
)


def run(step: Step) -> list[Table]:
    return [_over_the_network(step), _alone(step)]


def _over_the_network(step: Step) -> Table:
    systems = [Penstock("-X", f"penstock.validate={value}", name=value) for value in (HEADER_ALONE, RECORDS)]
    with running(systems, step, warm_bytes=3 * 600 * MB) as stage:
        results = measure_all(stage, WORKLOADS, rounds=ROUNDS)
    rows = []
    for workload, of in results.items():
        plain, checked = of[HEADER_ALONE], of[RECORDS]
        count = max(1, workload.options.get("batch_bytes", 0) // (workload.options.get("message_bytes", KB) + 10))
        extra = checked.median(lambda one: one.cpu_us_per_request) - plain.median(lambda one: one.cpu_us_per_request)
        rows.append(
            Row(
                {
                    "a request": workload.name,
                    "CPU µs, header": plain.median(lambda one: one.cpu_us_per_request),
                    "CPU µs, records": checked.median(lambda one: one.cpu_us_per_request),
                    "× CPU": checked.ratio(plain, lambda one: one.cpu_us_per_request),
                    "µs a record": extra / count,
                    "× MB/s": checked.ratio(plain, lambda one: one.mb_per_s),
                }
            )
        )
    how = (
        f"acks=1, uncompressed. CPU of the broker with its helper, which checks batches of more than 2,000 records. "
        f"Medians of {ROUNDS} rounds in turns; {stage.cores}."
    )
    raw = {workload.name: {name: one.as_json() for name, one in of.items()} for workload, of in results.items()}
    return Table("penstock.validate over the network", how, rows, raw)


def _alone(step: Step) -> Table:
    rows = []
    for codec in Codec:
        for size in (100, KB):
            # Text with some likeness, so that codecs have something to do.
            words = islice(cycle(f"order {number} paid in full by card; " for number in range(997)), 100 * size)
            text = "".join(words).encode()
            values = [text[number * size : (number + 1) * size] for number in range(100)]
            batch = bytes(build([NewRecord(value) for value in values], codec=codec))
            timing = take_turns({"check": _checking(batch)}, rounds=ROUNDS, step=step)["check"]
            rows.append(
                Row(
                    {
                        "100 records": f"{size} B each, {codec.name.lower()}",
                        "bytes": float(len(batch) - HEADER.size),
                        "CPU µs": timing.cpu_s * 1e6 / _TIMES,
                        "µs a record": timing.cpu_s * 1e4 / _TIMES,
                    }
                )
            )
    return Table("The check alone", "Decompression, where there is any, and the walk; one process, no network.", rows)


_TIMES: Final = 200


def _checking(batch: bytes) -> Case:
    return repeat(partial(_check, batch), _TIMES)


def _check(batch: bytes) -> None:
    header = read_header(batch)
    assert check_records(header, payload(header, batch)).damage is None
