"""Values that several commands take, and questions that they ask."""

import os
import pty
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from penstock.cli.main import penstock
from penstock.cli.options import MAX_SETTING_BYTES, NameValue, Setting, given_before
from penstock.client.settings import ClientSettings
from tests.cli.commands import commands
from tests.cli.conftest import Running
from tests.cli.groups import commit
from tests.client.peer import closed_port

Call = Callable[..., Result]
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


def setting(text: str) -> tuple[str, str]:
    return Setting().convert(text, None, None)


@pytest.mark.parametrize("value", ["b", "", "b=c", "@file=x", "file:/x", "@/x", "env:HOME"])
def test_the_value_of_a_setting_is_taken_as_it_is(value: str) -> None:
    assert setting(f"a.b={value}") == ("a.b", value)


@pytest.mark.parametrize("written", ["s3cr=t ", "s3cr=t \n", "s3cr=t \r\n"])
def test_a_setting_can_come_from_a_file_without_its_line_end(tmp_path: Path, written: str) -> None:
    path = tmp_path / "a=b"
    path.write_bytes(written.encode())
    assert setting(f"sasl.password@file={path}") == ("sasl.password", "s3cr=t ")
    path.write_text("one\n\n")
    assert setting(f"sasl.password@file={path}") == ("sasl.password", "one\n")


def test_a_setting_can_come_from_a_file_in_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "password").write_text("s3cret")
    assert setting("sasl.password@file=~/password") == ("sasl.password", "s3cret")


def test_a_setting_can_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "s3cr=t\n")
    assert setting("sasl.password@env=A_SECRET") == ("sasl.password", "s3cr=t\n")


def test_a_place_without_a_value_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH", raising=False)
    (tmp_path / "large").write_bytes(bytes(MAX_SETTING_BYTES + 1))
    (tmp_path / "binary").write_bytes(b"\xff")
    for text, message in (
        (f"a@file={tmp_path}/none", "a: .*none' cannot be read: No such file"),
        (f"a@file={tmp_path}", "a: .* cannot be read: Is a directory"),
        ("a@file=\0", "a: .* cannot be read: embedded null byte"),
        (f"a@file={tmp_path}/large", "has more than 1048576 bytes"),
        (f"a@file={tmp_path}/binary", "is not UTF-8"),
        ("a@env=NO_SUCH", "a: there is no variable 'NO_SUCH' in the environment"),
        ("a@url=x", "a@url: a value comes from @file or from @env"),
        ("a@=x", "a@: a value comes from @file or from @env"),
    ):
        with pytest.raises(click.BadParameter, match=message):
            setting(text)


@pytest.mark.parametrize("text", ["sasl.password:s3cret", "sasl.password s3cret", "=s3cret", "@file=s3cret"])
def test_a_setting_that_is_none_is_refused_without_showing_its_value(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not of the form name=value") as caught:
        setting(text)
    assert "s3cret" not in str(caught.value)


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


def test_on_a_terminal_it_is_asked_before_anything_is_lost(cli: Call, program: Start, topic: str) -> None:
    code, seen = on_a_terminal(program, "topic", "delete", topic, answer=b"n\n")
    assert code == 1
    assert f"Delete {topic} with all messages? [y/N]" in seen
    assert "nothing was changed" in seen
    cli("topic", "describe", topic)

    code, seen = on_a_terminal(program, "topic", "delete", topic, answer=b"y\n")
    assert code == 0, seen
    cli("topic", "describe", topic, exit_code=1)


def test_no_color_sends_no_escapes_to_a_terminal(
    cli: Call, program: Start, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b" in on_a_terminal(program, "topic", "describe", topic, answer=b"")[1]
    monkeypatch.setenv("NO_COLOR", "1")
    code, seen = on_a_terminal(program, "topic", "describe", topic, answer=b"")
    assert code == 0
    assert "\x1b" not in seen


def test_yes_is_an_answer_given_before(cli: Call, program: Start, topic: str) -> None:
    code, seen = on_a_terminal(program, "topic", "delete", "--yes", topic, answer=b"")
    assert code == 0
    assert "[y/N]" not in seen


DESTRUCTIVE = {
    "topic delete": ["topic", "delete", "TOPIC"],
    "topic trim": ["topic", "trim", "TOPIC", "--before", "end"],
    "group seek": ["group", "seek", "GROUP", "--to", "latest"],
    "group delete": ["group", "delete", "GROUP"],
}


@pytest.mark.parametrize("command", DESTRUCTIVE, ids=lambda command: command.replace(" ", "-"))
@pytest.mark.parametrize("answer", ["n\n", "y\n", ""], ids=["no", "yes", "nothing"])
def test_without_a_terminal_nothing_is_lost_unless_yes_is_said(
    cli: Call, broker: Running, topic: str, command: str, answer: str
) -> None:
    cli("produce", topic, input="a\nb\n")
    commit(broker, f"group-{topic}", {(topic, 0): 1})
    args = [each.replace("TOPIC", topic).replace("GROUP", f"group-{topic}") for each in DESTRUCTIVE[command]]
    refused = cli(*args, input=answer, exit_code=2)
    assert "nothing was changed, since standard input is no terminal on which to ask" in refused.stderr
    assert "Say so with --yes." in refused.stderr
    assert refused.stdout == ""
    assert cli("consume", topic).stdout == "a\nb\n"
    assert '"committed": 1' in cli("group", "describe", f"group-{topic}", "-O", "json").stdout
    cli(*args, "--yes")


def test_every_command_that_asks_is_known_to_the_test_above() -> None:
    """But for elections, which ask only where a leader is lost: tests/cli/topic/test_elect.py."""
    asking = {path for path, command in commands() if any(param.name == "yes" for param in command.params)}
    assert asking == {*DESTRUCTIVE, "topic elect"}


@pytest.mark.parametrize("option", ["-b", "--bootstrap"])
def test_the_cluster_can_be_named_before_the_command_or_after_it(
    broker: Running, topic: str, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = f"127.0.0.1:{closed_port()}"
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", elsewhere)
    for args in (
        [option, broker.address, "topic", "describe", topic],
        ["topic", "describe", topic, option, broker.address],
        [option, elsewhere, "topic", "describe", topic, option, broker.address],
    ):
        result = CliRunner().invoke(penstock, args)
        assert result.exit_code == 0, (args, result.stderr)
    for args in (["topic", "describe", topic], ["topic", "describe", topic, option, elsewhere]):
        assert CliRunner().invoke(penstock, args).exit_code == 1


def test_what_no_cluster_is_asked_for_has_no_cluster_before_it(tmp_path: Path) -> None:
    for args in (["-b", "x:1", "log", "dump", str(tmp_path)], ["-X", "client.id=me", "completion", "bash"]):
        refused = CliRunner().invoke(penstock, args)
        assert refused.exit_code == 2
        assert "connects to no cluster" in refused.stderr


def test_settings_of_the_client_can_be_given_before_and_after(
    cli: Call, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, Any]] = []

    def read(_: object, client: dict[str, str]) -> ClientSettings:
        seen.append(dict(client))
        return ClientSettings(bootstrap_servers=client["bootstrap.servers"])

    monkeypatch.setattr("penstock.client.settings.read_settings", read)
    monkeypatch.setenv("A_SECRET", "from the environment")
    (tmp_path / "password").write_text("from a file\n")
    before = ["-X", "client.id=before", "-X", "sasl.username@env=A_SECRET"]
    cli(*before, "topic", "list", "-X", "client.id=after", "-X", f"sasl.password@file={tmp_path}/password")
    assert seen[0].pop("bootstrap.servers")
    assert seen[0].pop("fail.fast") == "true"
    assert seen == [{"client.id": "after", "sasl.username": "from the environment", "sasl.password": "from a file"}]


def test_every_command_that_connects_takes_the_cluster_and_settings() -> None:
    local = {"serve", "cluster adopt", "cluster export", "cluster import", "log dump", "completion"}
    for path, command in commands():
        options = {option for param in command.params for option in param.opts}
        if path not in local:
            assert {"-b", "--bootstrap", "-X"} <= options, path
            assert [param.callback for param in command.params if param.name == "settings"] == [given_before], path


def test_a_setting_that_is_unknown_or_wrong_is_wrong_usage(cli: Call, topic: str) -> None:
    refused = cli("topic", "list", "-X", "request.timeout.m=1", exit_code=2)
    assert "did you mean request.timeout.ms" in refused.stderr
    assert "-X" in refused.stderr
    cli("topic", "list", "-X", "request.timeout.ms=soon", exit_code=2)
    assert "linger.ms" in cli("produce", topic, "-X", "linger.ms=-1", input="x\n", exit_code=2).stderr
    alone = cli("consume", topic, "-X", "isolation.level=read_committed", exit_code=2).stderr
    assert "with --group, -X takes all settings of a consumer" in alone
    assert "max.poll.records" in cli("consume", topic, "-g", "g", "-X", "max.poll.records=0", exit_code=2).stderr
