"""`penstock pipeline`: the commands that run jobs on Spark, a module for each. `spark-submit` runs this file with the
commands of the group."""

from penstock.cli.pipeline.pipeline import pipeline

__all__ = ["pipeline"]

if __name__ == "__main__":
    pipeline()
