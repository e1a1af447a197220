"""What clients can do to the log and to the monitoring of a broker: its lines, and /healthz beside /metrics."""

import asyncio
import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock.broker.log_rates import BURST
from penstock.broker.logs import JsonFormatter, TextFormatter
from penstock.broker.network import connection as connection_module
from penstock.protocol.schemas.metadata import MetadataRequest
from tests.broker.harness import in_loop
from tests.hostile.stage import beside_an_honest_client, scale


@contextmanager
def written_log(formatter: logging.Formatter) -> Iterator[io.StringIO]:
    """What the broker writes to its log meanwhile."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    logger = logging.getLogger("penstock")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield stream
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_a_client_id_forges_no_line_of_the_log(formatter: logging.Formatter) -> None:
    forged = "2026-01-01T00:00:00.000Z critical the disk has failed"

    @in_loop
    async def test() -> None:
        async with beside_an_honest_client() as stage:
            with written_log(formatter) as log:
                sly = await stage.attacker(client_id=f"x\n{forged}\r\n{forged}\u2028{forged} \x1b[2J\x9b2J")
                long = await stage.attacker(client_id="y" * 30_000)
                # Every request is slow now, and a line says whose it was.
                stage.node.broker.services.meters.requests.slow.threshold_seconds = 0.0
                await asyncio.gather(*(each.ask(MetadataRequest(topics=[]), 12) for each in (sly, long)))
            lines = log.getvalue().splitlines()
            assert len([line for line in lines if "the disk has failed" in line]) == 1
            assert len([line for line in lines if "yyyyyyyy" in line]) == 1
            for line in lines:
                assert line.isprintable()
                assert "slow request" in line
                assert len(line) < 2_000

    test()


@in_loop
async def test_a_thousand_bad_connections_write_a_few_lines_and_all_are_counted() -> None:
    count = scale(1_000, soak=20_000)
    with pytest.MonkeyPatch.context() as patched:
        # However long they take, to the log it is one moment.
        patched.setattr(connection_module.log, "_clock", lambda: 0.0)
        async with beside_an_honest_client() as stage:
            with written_log(TextFormatter()) as log:
                for _ in range(count):
                    attacker = await stage.attacker()
                    attacker.send_bytes(b"\xff\xff\xff\xff")
                    assert await attacker.closed() == b""
                    attacker.close()
                await stage.honest.answers_more(10)
            lines = log.getvalue().splitlines()
            assert len(lines) == BURST
            assert all("connection closed" in line for line in lines)
            assert stage.node.broker.listener.closed["error"] == count


@in_loop
async def test_health_is_told_beside_greedy_scrapes_and_connections_that_never_ask() -> None:
    async with beside_an_honest_client({"penstock.metrics.listen": "127.0.0.1:0"}) as stage:
        address = stage.node.broker.metrics_address
        assert address is not None
        crowd = []
        for number in range(scale(200, soak=2_000)):
            _, writer = await asyncio.open_connection(*address, limit=1024)
            # First scrapes that nobody reads, then by turns half a request and nothing at all.
            writer.write(b"GET /metrics HTTP/1.1\r\n\r\n" if number < 40 else b"GET /hea" if number % 2 else b"")
            crowd.append(writer)
        for _ in range(20):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
            assert (await reader.read()).endswith(b"\r\n\r\nOK\n")
            writer.close()
        await stage.honest.answers_more(10)
        for writer in crowd:
            writer.close()
