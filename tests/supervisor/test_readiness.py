"""What a broker and its supervisor tell each other."""

import io
import os

from penstock.supervisor.readiness import Readiness, read_readiness, wait_for_word, write_readiness

TOLD = Readiness(2, "cluster", "127.0.0.1:9094", "http://127.0.0.1:9406/metrics")


def test_what_a_broker_reports_is_what_its_supervisor_reads() -> None:
    output = io.BytesIO()
    write_readiness(output, TOLD)
    assert read_readiness(output.getvalue()) == TOLD


def test_another_line_is_no_report() -> None:
    for line in (b"", b"hello\n", b"{}\n", b"3\n", b'{"node_id": 1}\n'):
        assert read_readiness(line) is None


def test_a_broker_whose_supervisor_is_gone_goes_on() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb", buffering=0) as output:
        write_readiness(output, TOLD)


def test_a_broker_begins_when_it_is_told_to_and_not_when_its_supervisor_died() -> None:
    assert wait_for_word(io.BytesIO(b"go\n"))
    assert not wait_for_word(io.BytesIO(b""))
