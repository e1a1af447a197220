"""Tables that fit: without some columns, with folded cells, or long."""

import pytest

from penstock.cli.tables import FOLDED, cells, fold, lay_out, lines

TITLES = ["TOPIC", "PARTITIONS", "REPLICAS", "SIZE"]
ROWS = [["orders", "3", "1", "10.9 KiB"], ["payments", "12", "3", "1.1 GiB"]]


def chosen(width: int, rows: list[list[str]] = ROWS) -> list[str] | None:
    layout = lay_out(TITLES, rows, spare=[2, 1], width=width)
    return None if layout.is_long else [TITLES[column] for column in layout.columns]


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (200, ["TOPIC", "PARTITIONS", "REPLICAS", "SIZE"]),
        (40, ["TOPIC", "PARTITIONS", "REPLICAS", "SIZE"]),
        (39, ["TOPIC", "PARTITIONS", "SIZE"]),
        (30, ["TOPIC", "PARTITIONS", "SIZE"]),
        (29, ["TOPIC", "SIZE"]),
        (18, ["TOPIC", "SIZE"]),
        (17, None),
    ],
)
def test_columns_that_can_be_spared_are_left_out_in_turn_and_then_the_table_is_long(
    width: int, columns: list[str] | None
) -> None:
    assert chosen(width) == columns


def test_the_widest_column_is_folded_while_a_name_can_be_read() -> None:
    rows = [["a-topic-with-a-rather-long-name", "3", "1", "10.9 KiB"]]
    layout = lay_out(TITLES, rows, spare=[2, 1], width=FOLDED + 2 + 8)
    assert layout.widths == (FOLDED, 8)
    row = [rows[0][column] for column in layout.columns]
    assert lines(row, layout.widths, [False, True]) == ["a-topic-with-a-r  10.9 KiB", "ather-long-name"]
    assert chosen(FOLDED + 2 + 7, rows) is None


def test_a_long_table_has_all_columns() -> None:
    assert lay_out(TITLES, ROWS, spare=[2, 1], width=10).columns == (0, 1, 2, 3)


def test_numbers_stand_on_the_right() -> None:
    assert lines(["a", "1"], [3, 4], [False, True]) == ["a       1"]


def test_wide_letters_take_two_cells() -> None:
    assert cells("\u8a02\u55ae") == 4
    assert lines(["\u8a02\u55ae", "1"], [6, 1], [False, True]) == ["\u8a02\u55ae    1"]
    assert fold("\u8a02\u55ae", 3) == ["\u8a02", "\u55ae"]
