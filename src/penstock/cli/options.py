"""Options and arguments that several commands have, and the types of their values."""

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from penstock.client.cluster import Cluster

DEFAULT_BOOTSTRAP = "localhost:9092"
# Whoever presses TAB does not wait long.
COMPLETION_TIMEOUT_MS = 1_000


class NameValue(click.ParamType[tuple[str, str], Any]):
    """`name=value`; the value may be empty and have further equal signs."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, equals, rest = str(value).partition("=")
        if not name or not equals:
            self.fail(f"{value!r} is not of the form name=value", param, ctx)
        return name, rest


class TopicName(click.ParamType[str, Any]):
    """A topic; the shell is offered those that there are."""

    name = "topic"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        async def names(cluster: "Cluster") -> list[str]:
            topics = await cluster.all_topics(timeout_ms=COMPLETION_TIMEOUT_MS)
            return [topic.name for topic in topics if not topic.is_internal]

        return _complete(ctx, incomplete, names)


class GroupName(click.ParamType[str, Any]):
    """A consumer group; the shell is offered those that there are."""

    name = "group"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        from penstock.client.groups import all_listed, list_groups

        async def names(cluster: "Cluster") -> list[str]:
            return [each.group for each in all_listed(await list_groups(cluster, timeout_ms=COMPLETION_TIMEOUT_MS))]

        return _complete(ctx, incomplete, names)


def _complete(ctx: click.Context, incomplete: str, names: "Callable[[Cluster], Awaitable[list[str]]]") -> list[Any]:
    from click.shell_completion import CompletionItem

    from penstock.cli.running import run

    try:
        found = run(ctx.params.get("bootstrap") or DEFAULT_BOOTSTRAP, names)
    except click.ClickException:
        # There is no good place for an error while somebody is typing.
        return []
    return [CompletionItem(name) for name in found if name.startswith(incomplete)]


bootstrap_option = click.option(
    "--bootstrap",
    envvar="PENSTOCK_BOOTSTRAP",
    default=DEFAULT_BOOTSTRAP,
    show_default=True,
    show_envvar=True,
    metavar="HOST:PORT",
    help="A broker of the cluster; or several, separated by commas.",
)

output_option = click.option(
    "--output",
    "-O",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Tables are for people, JSON is for programs.",
)

yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")

topic_argument = click.argument("topic", type=TopicName(), metavar="TOPIC")


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is lost, unless it was said already or nobody is there to ask."""
    if not yes and sys.stdin.isatty() and not click.confirm(question, err=True):
        raise click.ClickException("nothing was changed")
