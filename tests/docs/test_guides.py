"""The guides work when they are followed one after the other against one broker: their commands in a shell, their
Python pasted into files."""

import os
import re
import sys
from pathlib import Path

import pytest

from penstock.testing import Broker
from tools.guides import INDEX, ROOT, Guide, GuideError, guides

GUIDES = guides()
PLAIN = [guide for guide in GUIDES if guide.runs and not guide.needs_spark]
SPARK = [guide for guide in GUIDES if guide.runs and guide.needs_spark]


@pytest.fixture
def environment() -> dict[str, str]:
    """That of a user who has activated the environment of the tests, and has this source installed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.mark.timeout(600)
def test_the_guides_work_one_after_the_other_against_one_broker(environment: dict[str, str], tmp_path: Path) -> None:
    with Broker() as broker:
        for guide in PLAIN:
            guide.follow(tmp_path, environment, address=broker.bootstrap)


@pytest.mark.timeout(900)
def test_the_guides_to_spark_work_one_after_the_other_against_one_broker(
    environment: dict[str, str], tmp_path: Path
) -> None:
    with Broker() as broker:
        for guide in SPARK:
            guide.follow(tmp_path, environment, address=broker.bootstrap)
    assert len(list((tmp_path / "counts").glob("*.parquet"))) == 6
    assert len(list((tmp_path / "pictures").glob("*.png"))) == 4


def test_every_guide_is_in_the_index() -> None:
    assert {guide.path for guide in GUIDES} == {ROOT / "README.md", *INDEX.parent.glob("*.md")} - {INDEX}
    assert [guide.name for guide in PLAIN[:3]] == ["README", "quick-start", "producing"]


def test_guides_make_topics_of_different_names() -> None:
    made: dict[str, str] = {}
    for guide in GUIDES:
        if guide.name in ("README", "quick-start", "producing", "testing"):
            # The first three go on with one topic, which they make unless it is there; tests have brokers of their own.
            continue
        code = "".join(block.code for block in guide.blocks if block.language in ("python", "sh", "console"))
        for topic in re.findall(r'create_topic\("([\w-]+)"|topic create ([\w-]+)', code):
            name = "".join(topic)
            assert made.setdefault(name, guide.name) == guide.name, f"{guide.name} and {made[name]} make {name}"
    assert len(made) > 8


def page(folder: Path, text: str) -> Guide:
    path = folder / "page.md"
    path.write_text(text)
    return Guide(path)


def test_a_program_that_fails_without_saying_so_fails_its_guide(environment: dict[str, str], tmp_path: Path) -> None:
    forgotten = "async def f():\n    asyncio.get_running_loop().call_soon(lambda: 1 / 0)\n"
    guide = page(tmp_path, f"```python\nimport asyncio\n{forgotten}asyncio.run(f())\n```\n")
    with pytest.raises(GuideError, match="ZeroDivisionError"):
        guide.follow(tmp_path, environment)


def test_a_command_that_was_to_fail_and_works_fails_its_guide(environment: dict[str, str], tmp_path: Path) -> None:
    page(tmp_path, "```console fails\n$ false\nan error\n```\n").follow(tmp_path, environment)
    with pytest.raises(GuideError, match="this was to fail: true"):
        page(tmp_path, "```console fails\n$ true\n```\n").follow(tmp_path, environment)


def test_a_command_that_fails_fails_its_guide(environment: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(GuideError, match="ended with 1"):
        page(tmp_path, "```console\n$ false | true\nshown\n$ true\n```\n").follow(tmp_path, environment)


def test_a_guide_that_does_not_say_how_to_paste_its_python_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GuideError, match="does not say how to paste its Python"):
        page(tmp_path, "```python\nprint(1)\n```\n" * 2).programs()


def test_blocks_make_one_file_with_the_lines_of_the_guide_or_a_file_each(tmp_path: Path) -> None:
    python = "```python\nfirst = 1\n```\n\nThen:\n\n```python\nprint(first)\n```\n"
    together = page(tmp_path, f"Paste them one after the other into one file:\n\n{python}")
    assert together.programs() == {"page_guide.py": "\n\n\nfirst = 1\n\n\n\n\n\nprint(first)\n"}
    assert together.script().splitlines()[-1] == "python page_guide.py"
    alone = page(tmp_path, f"Each of them is a program of its own:\n\n{python}")
    assert list(alone.programs()) == ["page_4.py", "page_10.py"]
    assert alone.script().splitlines()[-2:] == ["python page_4.py", "python page_10.py"]
