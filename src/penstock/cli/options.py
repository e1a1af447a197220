"""Defines options and arguments that several commands have, and the types of their values."""

import os
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from penstock.client.cluster.cluster import Cluster

ClientConfig: TypeAlias = Mapping[str, str]
"""Settings of the client that a command is, by Kafka's names, as -b and -X have given them."""

CLIENT_ID = "penstock-cli"
DEFAULT_BOOTSTRAP = "localhost:9092"
# Limits how long completion may take after TAB is pressed.
COMPLETION_TIMEOUT_MS = 1_000
# Limits the file of a secret; a key with its certificates has a few kilobytes.
MAX_SETTING_BYTES = 1024 * 1024

SECRETS_HELP = (
    "Other users of this machine see command lines, in ps: take a secret from a file or the environment, by "
    "NAME@file=PATH or NAME@env=VARIABLE."
)


class NameValue(click.ParamType[tuple[str, str], Any]):
    """A `name=value`; the value may be empty and have further equal signs."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, equals, rest = str(value).partition("=")
        if not name or not equals:
            self.fail(f"{value!r} is not of the form name=value", param, ctx)
        return name, rest


class Setting(NameValue):
    """A `name=value`, or the place of the value: `name@file=path`, whose last line end is left out, or
    `name@env=variable`.

    The mark follows the name because no setting has such a name, while a value may begin with anything. Errors never
    show the value: it may be a password.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        left, equals, right = str(value).partition("=")
        name, at, source = left.partition("@")
        if not name or not equals:
            begin = re.match(r"[\w.-]*", left)
            shown = "" if begin is None else begin[0]
            self.fail(f"what begins with {shown!r} is not of the form name=value", param, ctx)
        if at and source not in ("file", "env"):
            self.fail(f"{name}@{source}: a value comes from @file or from @env", param, ctx)
        if source == "file":
            return name, self._from_file(name, right, param, ctx)
        if source == "env":
            if right not in os.environ:
                self.fail(f"{name}: there is no variable {right!r} in the environment; export it", param, ctx)
            return name, os.environ[right]
        return name, right

    def _from_file(self, name: str, path: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        def refuse(reason: str) -> NoReturn:
            self.fail(f"{name}: {path!r} {reason}", param, ctx)

        try:
            with open(os.path.expanduser(path), "rb") as file:
                data = file.read(MAX_SETTING_BYTES + 1)
        except (OSError, ValueError) as error:
            refuse(f"cannot be read: {getattr(error, 'strerror', None) or error}")
        if len(data) > MAX_SETTING_BYTES:
            refuse(f"has more than {MAX_SETTING_BYTES} bytes; name the file that has the value alone")
        try:
            text = data.decode()
        except UnicodeDecodeError:
            refuse("is not UTF-8; save it as that")
        return text.removesuffix("\n").removesuffix("\r")


class TopicName(click.ParamType[str, Any]):
    """The name of a topic; completion offers the topics of the cluster."""

    name = "topic"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        async def names(cluster: "Cluster") -> list[str]:
            topics = await cluster.all_topics(timeout_ms=COMPLETION_TIMEOUT_MS)
            return [topic.name for topic in topics if not topic.is_internal]

        return _complete(ctx, incomplete, names)


class GroupName(click.ParamType[str, Any]):
    """The name of a consumer group; completion offers the groups of the cluster."""

    name = "group"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        from penstock.client.admin.groups import all_listed, list_groups

        async def names(cluster: "Cluster") -> list[str]:
            return [each.group for each in all_listed(await list_groups(cluster, timeout_ms=COMPLETION_TIMEOUT_MS))]

        return _complete(ctx, incomplete, names)


def _complete(ctx: click.Context, incomplete: str, names: "Callable[[Cluster], Awaitable[list[str]]]") -> list[Any]:
    from click.shell_completion import CompletionItem

    from penstock.cli.running import run

    bootstrap, settings = ctx.params.get("bootstrap"), ctx.params.get("settings")
    try:
        found = run(client_settings(bootstrap or DEFAULT_BOOTSTRAP, settings or ()), names)
    except click.ClickException:
        # There is no good place for an error in the middle of a command line.
        return []
    return [CompletionItem(name) for name in found if name.startswith(incomplete)]


def given_before(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """The value of an option that may also be given before the command: what is given after it wins, and settings of
    both places are joined."""
    assert param.name is not None
    before = ctx.find_root()
    if before is ctx or before.get_parameter_source(param.name) is not ParameterSource.COMMANDLINE:
        return value
    if param.multiple:
        return (*before.params[param.name], *(value or ()))
    is_given = ctx.get_parameter_source(param.name) is ParameterSource.COMMANDLINE
    return value if is_given else before.params[param.name]


bootstrap_option = click.option(
    "--bootstrap",
    "-b",
    envvar="PENSTOCK_BOOTSTRAP",
    default=DEFAULT_BOOTSTRAP,
    show_default=True,
    show_envvar=True,
    metavar="HOST:PORT",
    callback=given_before,
    help="A broker of the cluster; or several, separated by commas.",
)

setting_option = click.option(
    "-X",
    "settings",
    type=Setting(),
    multiple=True,
    metavar="NAME=VALUE",
    callback=given_before,
    help=f"Set any of the client's settings, such as security.protocol=SSL. {SECRETS_HELP}",
)


def client_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add -b and -X to a command, which gets what they say as its argument `client`."""

    @wraps(command)
    def call(*, bootstrap: str, settings: Sequence[tuple[str, str]], **others: Any) -> None:
        command(client=client_settings(bootstrap, settings), **others)

    return bootstrap_option(setting_option(call))


def client_settings(bootstrap: str, settings: Iterable[tuple[str, str]]) -> ClientConfig:
    """What is given, on top of what suits a command: it does not wait for a broker that was never there."""
    return {"client.id": CLIENT_ID, "bootstrap.servers": bootstrap, "fail.fast": "true", **dict(settings)}


output_option = click.option(
    "--output",
    "-O",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Tables are for people, JSON is for programs.",
)

yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask; needed where there is no terminal.")

topic_argument = click.argument("topic", type=TopicName(), metavar="TOPIC")


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is lost, unless `yes` is set. Where there is no terminal to ask at, the command is refused:
    what stands in a pipe was not meant as an answer."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"nothing was changed, since standard input is no terminal on which to ask: {question} Say so with --yes."
        )
    if not click.confirm(question, err=True):
        raise click.ClickException("nothing was changed")
