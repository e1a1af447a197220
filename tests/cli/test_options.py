"""Values that several commands take, and questions that they ask."""

import os
import pty
import subprocess
from collections.abc import Callable
from typing import Any

import click
import pytest
from click.testing import Result

from penstock.cli.options import NameValue

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.mark.parametrize(
    ("text", "pair"), [("a=b", ("a", "b")), ("a=", ("a", "")), ("a=b=c", ("a", "b=c")), ("a.b= c ", ("a.b", " c "))]
)
def test_a_name_and_a_value_are_divided_at_the_first_equal_sign(text: str, pair: tuple[str, str]) -> None:
    assert NameValue().convert(text, None, None) == pair


@pytest.mark.parametrize("text", ["a", "=b", ""])
def test_without_a_name_or_an_equal_sign_it_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="not of the form name=value"):
        NameValue().convert(text, None, None)


def on_a_terminal(program: Start, *args: str, answer: bytes) -> tuple[int, str]:
    """Exit code, and all that was to be seen."""
    ours, theirs = pty.openpty()
    settings: dict[str, Any] = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    process = program(*args, **settings)
    os.close(theirs)
    os.write(ours, answer)
    seen = b""
    while True:
        try:
            chunk = os.read(ours, 4096)
        except OSError:
            # Linux says so at the end.
            break
        if not chunk:
            break
        seen += chunk
    os.close(ours)
    return process.wait(30), seen.decode()


def test_on_a_terminal_it_is_asked_before_anything_is_lost(
    cli: Callable[..., Result], program: Start, topic: str
) -> None:
    code, seen = on_a_terminal(program, "topic", "delete", topic, answer=b"n\n")
    assert code == 1
    assert f"Delete {topic} with all messages? [y/N]" in seen
    assert "nothing was changed" in seen
    cli("topic", "describe", topic)

    code, seen = on_a_terminal(program, "topic", "delete", topic, answer=b"y\n")
    assert code == 0, seen
    cli("topic", "describe", topic, exit_code=1)


def test_yes_is_an_answer_given_before(cli: Callable[..., Result], program: Start, topic: str) -> None:
    code, seen = on_a_terminal(program, "topic", "delete", "--yes", topic, answer=b"")
    assert code == 0
    assert "[y/N]" not in seen


def test_nobody_is_asked_where_nobody_is(cli: Callable[..., Result], topic: str) -> None:
    assert cli("topic", "delete", topic).stdout == f"deleted topic {topic}\n"
