"""The daemon of Spark's workers: pyspark from where it is installed."""

import subprocess
import sys

import pyspark
import pytest

from penstock.spark import daemon


def test_the_zip_file_is_left_out_if_pyspark_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["/spark/python/lib/pyspark.zip", *sys.path])

    daemon.prefer_installed()

    assert not any(path.endswith("pyspark.zip") for path in sys.path)


def test_the_zip_file_is_used_if_there_is_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "find_spec", lambda _: None)
    monkeypatch.setattr(sys, "path", ["/spark/python/lib/pyspark.zip", "/elsewhere"])

    daemon.prefer_installed()

    assert sys.path == ["/spark/python/lib/pyspark.zip", "/elsewhere"]


def test_nothing_that_starts_threads_is_imported_before_workers_are_forked() -> None:
    program = (
        "import sys; import penstock.spark.daemon as d; d.prefer_installed(); import pyspark.daemon; "
        "print(sorted({'numpy', 'pyarrow', 'pandas', 'numba'} & set(sys.modules)), pyspark.__file__)"
    )

    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert told.strip() == f"[] {pyspark.__file__}"


def test_a_worker_whose_jvm_is_gone_ends_without_a_word() -> None:
    program = """
from penstock.spark.daemon import quietly

def worker(sock, authenticated):
    raise {}("nobody is there")

quietly(worker)(None, True)
"""
    ended = [
        subprocess.run([sys.executable, "-c", program.format(error)], capture_output=True, text=True, check=False)
        for error in ("BrokenPipeError", "ValueError")
    ]

    assert [each.returncode for each in ended] == [1, 1]
    assert ended[0].stderr == ""
    assert "ValueError: nobody is there" in ended[1].stderr
