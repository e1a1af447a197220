"""`penstock pipeline` archives, replays and counts topics, in jobs on Spark."""

import click

from penstock.cli.lazy import Entry, LazyGroup

COMMANDS = {
    "archive": Entry("penstock.cli.pipeline.archive:archive", "Add what a topic has to a Delta table."),
    "replay": Entry("penstock.cli.pipeline.replay:replay", "Send the rows of a Delta table to a topic."),
    "stats": Entry("penstock.cli.pipeline.stats:stats", "Count what topics have."),
}


@click.group(cls=LazyGroup, entries=COMMANDS, no_args_is_help=True)
def pipeline() -> None:
    """Run data pipelines on Spark.

    They run on this machine, or with --master on a cluster, where penstock-mq[spark] is installed on every node.
    """


if __name__ == "__main__":
    pipeline()
