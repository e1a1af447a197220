"""The helper's program: what goes in and out of its pipes, and when it ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec

from penstock.broker.helper import frames
from penstock.broker.helper.frames import Cancel, Done, Failed, Order, Result
from penstock.broker.helper.process import NICENESS, command, environment
from tests.broker.helper.sample_tasks import COUNT, Count, Number, Total

PATIENCE_SECONDS = 30


class Program:
    def __init__(self) -> None:
        self.process = subprocess.Popen(
            command("tests.broker.helper.sample_tasks"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.input, self.output = self.process.stdin, self.process.stdout

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.__exit__(None, None, None)

    def order(self, number: int, job: Count, task: str = COUNT.name) -> None:
        self.send(frames.write(Order(number, task, msgspec.Raw(msgspec.msgpack.encode(job)))))

    def send(self, frame: bytes) -> None:
        self.input.write(frame)
        self.input.flush()

    def answer(self) -> Result | Done | Failed:
        size = frames.length(self.output.read(frames.LENGTH.size), frames.MAX_ANSWER_BYTES)
        return frames.read_answer(self.output.read(size))

    def result(self) -> Number | Total:
        answer = self.answer()
        assert isinstance(answer, Result), answer
        return msgspec.msgpack.decode(answer.body, type=COUNT.results[answer.kind])

    def end(self) -> tuple[int, str]:
        """Its exit code and what it said, after its input was closed."""
        _, errors = self.process.communicate(timeout=PATIENCE_SECONDS)
        return self.process.returncode, errors.decode()


def test_it_carries_out_one_order_after_the_other_and_ends_with_its_input() -> None:
    with Program() as program:
        for number in (1, 2):
            program.order(number, Count(2))
            assert [program.result().value for _ in range(3)] == [0, 1, 2]
            assert program.answer() == Done(number)
        assert program.end() == (0, "")


def test_it_leaves_the_processor_to_others() -> None:
    with Program() as program:
        program.order(1, Count(1))
        told = program.result()
        assert isinstance(told, Number)
        assert told.niceness >= NICENESS


def test_an_error_of_a_job_is_told_and_the_next_job_is_done() -> None:
    with Program() as program:
        program.order(1, Count(2, fails_at=0))
        answer = program.answer()
        assert isinstance(answer, Failed)
        assert (answer.kind, answer.error) == ("ValueError", "0 is too much")
        assert "sample_tasks" in answer.traceback
        program.order(2, Count(), task="unheard of")
        unknown = program.answer()
        assert isinstance(unknown, Failed)
        assert (unknown.number, unknown.kind, unknown.error) == (2, "KeyError", "'unheard of'")
        program.order(3, Count())
        assert isinstance(program.result(), Total)


def test_a_job_that_is_cancelled_ends_early() -> None:
    with Program() as program:
        program.order(5, Count(-1))
        assert isinstance(program.result(), Number)
        program.send(frames.write(Cancel(5)))
        ended = program.result()
        assert isinstance(ended, Total)
        assert ended.was_stopped
        assert program.answer() == Done(5)


def test_it_ends_in_the_midst_of_a_job_when_its_input_does() -> None:
    with Program() as program:
        program.order(1, Count(-1, ignores_stop=True))
        program.result()
        program.input.close()
        assert program.process.wait(PATIENCE_SECONDS) == 0


def test_signals_for_the_broker_do_not_end_it() -> None:
    with Program() as program:
        program.order(1, Count(1))
        program.result()
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(program.process.pid, number)
        program.result()
        program.answer()
        program.order(2, Count(1))
        assert program.result().value == 0


def test_what_a_job_prints_comes_on_standard_error() -> None:
    with Program() as program:
        program.order(1, Count(says="hello"))
        program.result()
        assert program.end() == (0, "hello\n")


def test_what_is_no_order_ends_it_with_a_word() -> None:
    with Program() as program:
        program.send(frames.LENGTH.pack(1) + b"\xc1")
        code, errors = program.end()
        assert code == 1
        assert "a frame cannot be read" in errors


def test_it_imports_no_server() -> None:
    """It is started often enough that its weight matters."""
    source = (
        "import sys; import penstock.broker.helper.program; "
        "print(*(name for name in sys.modules if name in ('asyncio', 'penstock.broker.broker', 'click')))"
    )
    found = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True, cwd=Path("/"))
    assert found.stdout.strip() == ""
