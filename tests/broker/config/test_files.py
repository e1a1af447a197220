"""Settings in a file."""

from pathlib import Path

import pytest

from penstock.broker.config.files import read_settings
from penstock.broker.config.values import ConfigError


def read(folder: Path, name: str, content: str | bytes) -> dict[str, tuple[str, str]]:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return {
        setting.name: (setting.value, setting.source.removeprefix(f"{path}").removeprefix(" line "))
        for setting in read_settings(path)
    }


def test_properties_are_read_with_their_lines(tmp_path: Path) -> None:
    content = "# mine\nnode.id=1\n\nlisteners=PLAINTEXT://:9092,\\\n  B://:9093\n"
    assert read(tmp_path, "server.properties", content) == {
        "node.id": ("1", "2"),
        "listeners": ("PLAINTEXT://:9092,B://:9093", "4"),
    }


def test_any_other_name_means_properties(tmp_path: Path) -> None:
    assert read(tmp_path, "settings.conf", "node.id=1") == {"node.id": ("1", "1")}


def test_tables_of_toml_join_with_dots(tmp_path: Path) -> None:
    content = """
listeners = ["PLAINTEXT://:9092", "B://:9093"]
node.id = 7
"log.dir" = "/data"

[log.cleaner]
enable = false
io.max.bytes.per.second = 1.5

[log]
retention = { ms = -1 }
"""
    assert read(tmp_path, "penstock.toml", content) == {
        "listeners": ("PLAINTEXT://:9092,B://:9093", "2"),
        "node.id": ("7", "3"),
        "log.dir": ("/data", "4"),
        "log.cleaner.enable": ("false", "7"),
        "log.cleaner.io.max.bytes.per.second": ("1.5", "8"),
        "log.retention.ms": ("-1", ""),
    }


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.toml", "a = ", "a.toml: Invalid value"),
        ("a.toml", 'log.dir = "/a"\nlog.dir.failure.timeout.ms = 1', 'put the name in quotes: "log.dir"'),
        ("a.toml", "day = 2020-01-01", "a.toml line 1: day: is neither text, number"),
        ("a.toml", "a = [[1]]", "is neither text, number"),
        ("a.toml", 'a = ["b,c"]', "is neither text, number"),
        ("a.toml", b'a = "\xff"', "is not UTF-8"),
        ("a.properties", "a=1\nb=\\u12", "a.properties line 2: a \\u is not followed by four hexadecimal digits"),
    ],
)
def test_a_file_that_is_broken_is_refused_with_the_place(
    tmp_path: Path, name: str, content: str | bytes, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, name, content)
    assert message in str(caught.value)


def test_properties_that_are_no_utf_8_are_latin_1_as_in_java(tmp_path: Path) -> None:
    assert read(tmp_path, "server.properties", b"broker.rack=Stra\xdfe") == {"broker.rack": ("Straße", "1")}
    assert read(tmp_path, "server.properties", "broker.rack=Straße") == {"broker.rack": ("Straße", "1")}


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file or directory"):
        list(read_settings(tmp_path / "none.properties"))
