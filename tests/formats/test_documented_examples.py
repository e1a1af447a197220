"""docs/formats against the code: its example is run, and every dump and table of bytes is compared with the files."""

import re
from pathlib import Path

import pytest

PAGES = Path(__file__).parent.parent.parent / "docs" / "formats"


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which the example of the README has left its files."""
    program = re.search(r"```python\n(.*?)```", (PAGES / "README.md").read_text(), re.DOTALL)
    assert program is not None
    monkeypatch.chdir(tmp_path)
    exec(compile(program[1], "the example in docs/formats/README.md", "exec"), {})
    return tmp_path


def test_the_documented_files_are_those_that_are_written(example: Path) -> None:
    shown = re.search(r"\$ find data -type f \| sort\n(.*?)```", (PAGES / "README.md").read_text(), re.DOTALL)
    assert shown is not None
    files = [path.relative_to(example).as_posix() for path in example.rglob("*") if path.is_file()]
    assert shown[1].splitlines() == sorted(files)


def test_the_documented_dumps_are_the_files_byte_by_byte(example: Path) -> None:
    dumps = {name: dump for page in PAGES.glob("*.md") for name, dump in documented_dumps(page.read_text())}
    checkpoints = {"folder", "recovery-points", "clean-shutdown", "leader-epochs", "log-start", "identity"}
    files_by_suffix = {".log", ".index", ".timeindex", ".snapshot"}
    assert {Path(name).suffix or Path(name).name for name in dumps} == checkpoints | files_by_suffix
    for name, dump in dumps.items():
        assert dump == hexdump((example / name).read_bytes()), name


def test_the_documented_bytes_of_a_batch_are_where_they_should_be(example: Path) -> None:
    data = (example / "data/orders-0/00000000000000000000.log").read_bytes()
    rows = re.findall(r"^\| ([0-9a-f]{2}) \| (`.*?`) \|", (PAGES / "segment.md").read_text(), re.MULTILINE)
    assert len(rows) > 10
    for position, shown in rows:
        if "…" not in shown:
            expected = bytes.fromhex(shown.replace("`", ""))
            start = int(position, 16)
            assert data[start : start + len(expected)] == expected, f"byte {position}"


def documented_dumps(text: str) -> list[tuple[str, str]]:
    """File and output of each `hexdump -C` on a page."""
    return re.findall(r"\$ hexdump -C (\S+)\n(.*?)```", text, re.DOTALL)


def hexdump(data: bytes) -> str:
    """What `hexdump -C` prints, but for the repeated lines that it leaves out."""
    lines = []
    for start in range(0, len(data), 16):
        row = data[start : start + 16]
        left, right = row[:8].hex(" "), row[8:].hex(" ")
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        lines.append(f"{start:08x}  {left:<23}  {right:<23}  |{text}|\n")
    return "".join(lines) + f"{len(data):08x}\n"
