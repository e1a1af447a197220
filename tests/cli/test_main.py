"""The program as a whole: what it imports, how it ends, what it says then."""

import signal
import subprocess
import sys
from collections.abc import Callable

import click
import pytest
from click.testing import CliRunner, Result

from penstock import __version__
from penstock.cli.main import COMMANDS, INTERRUPTED, penstock
from tests.cli.conftest import PROGRAM
from tests.client.peer import closed_port

Start = Callable[..., "subprocess.Popen[bytes]"]

LOOK = """
import sys
from penstock.cli.main import main
try:
    main()
finally:
    heavy = ("rich", "asyncio", "msgspec", "cramjam", "penstock.client", "penstock.storage", "penstock.broker")
    print([name for name in heavy if name in sys.modules], file=sys.stderr)
"""


@pytest.mark.parametrize(
    "args", [["--help"], ["--version"], ["topic", "--help"], ["group", "--help"], ["consume", "--help"]]
)
def test_help_imports_nothing_heavy(args: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", LOOK, *args], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"
    assert done.stdout


def test_the_version_is_told() -> None:
    assert CliRunner().invoke(penstock, ["--version"]).output == f"penstock, version {__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_the_program_has_the_first_line_of_each_command(name: str) -> None:
    command = penstock.get_command(click.Context(penstock), name)
    assert command is not None
    assert COMMANDS[name].help == command.get_short_help_str(limit=200)


def test_wrong_usage_ends_with_2() -> None:
    result = CliRunner().invoke(penstock, ["topic", "create"])
    assert result.exit_code == 2
    assert "Missing argument 'TOPIC'" in result.stderr


def test_a_failure_ends_with_1_and_a_sentence() -> None:
    nowhere = f"127.0.0.1:{closed_port()}"
    result = CliRunner().invoke(penstock, ["topic", "list", "--bootstrap", nowhere])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert f"Error: no broker can be reached: cannot connect to {nowhere}" in result.stderr
    assert "Traceback" not in result.stderr


def test_no_error_is_obeyed_by_a_terminal() -> None:
    for args, code in ((["message", "get", "\x1b[2J"], 2), (["log", "dump", "/nowhere/\x1b[2J"], 2)):
        result = CliRunner().invoke(penstock, args)
        assert result.exit_code == code
        assert r"\x1b[2J" in result.stderr
        assert all(line.isprintable() for line in result.stderr.split("\n"))


def test_an_error_may_have_lines_and_quote_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def fail() -> None:
        raise click.ClickException("two lines\nof \x1b[2J\x9b\x07")

    monkeypatch.setattr("penstock.cli.completion.completion", fail)
    result = CliRunner().invoke(penstock, ["completion"])
    assert (result.exit_code, result.stderr) == (1, "Error: two lines\nof \\x9b\\x07\n")


def test_an_address_that_is_none_is_wrong_usage() -> None:
    result = CliRunner().invoke(penstock, ["topic", "list", "--bootstrap", "localhost:http"])
    assert result.exit_code == 2
    assert "'localhost:http' is no broker's address" in result.stderr


def test_a_reader_that_has_seen_enough_ends_it_quietly(cli: Callable[..., Result], program: Start, topic: str) -> None:
    cli("produce", topic, input=b"".join(b"%01000d\n" % number for number in range(2000)))
    consumer = program("consume", topic, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert consumer.stdout is not None
    assert consumer.stderr is not None
    assert consumer.stdout.readline() == b"%01000d\n" % 0
    consumer.stdout.close()
    assert consumer.stderr.read() == b""
    assert consumer.wait(30) == 0


def test_an_interruption_ends_with_130(cli: Callable[..., Result], program: Start, topic: str) -> None:
    producer = program("produce", topic, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert producer.stdin is not None
    assert producer.stderr is not None
    producer.stdin.write(b"one\n")
    producer.stdin.flush()
    # When this one ends, the message was sent, and the producer waits for more.
    assert cli("consume", topic, "--follow", "--count", "1").stdout == "one\n"
    producer.send_signal(signal.SIGINT)
    assert producer.wait(30) == INTERRUPTED
    told = producer.stderr.read().decode()
    assert "sent " in told
    assert "Traceback" not in told


def test_the_program_can_be_started_as_a_script() -> None:
    done = subprocess.run([*PROGRAM, "--help"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: penstock [OPTIONS] COMMAND [ARGS]...")
