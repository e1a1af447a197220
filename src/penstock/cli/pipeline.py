"""`penstock pipeline`: topics and lakes, by jobs on Spark. `spark-submit` runs this file with the same commands."""

import click

from penstock.cli.lazy import Entry, LazyGroup

COMMANDS = {
    "archive": Entry("penstock.cli.pipeline_archive:archive", "Add what a topic has to a Delta table."),
    "replay": Entry("penstock.cli.pipeline_replay:replay", "Send the rows of a Delta table to a topic."),
    "stats": Entry("penstock.cli.pipeline_stats:stats", "Count what topics have."),
}


@click.group(cls=LazyGroup, entries=COMMANDS, no_args_is_help=True)
def pipeline() -> None:
    """Run data pipelines on Spark.

    They run on this machine, or with --master on a cluster, where penstock[spark] is installed on every node.
    """


if __name__ == "__main__":
    pipeline()
