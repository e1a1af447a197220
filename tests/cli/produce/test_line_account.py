"""Which lines were not sent, and how to go on."""

from penstock.cli.produce.line_account import RUNS, Line, LineAccount


def account(*lengths: int, names: tuple[str, ...] = ("a", "b"), first: int = 1, is_open: bool = False) -> LineAccount:
    """An account that has read files of these lengths; the last may not be at its end."""
    made = LineAccount(names, first)
    for number, length in enumerate(lengths):
        made.read += length
        if number < len(lengths) - 1 or not is_open:
            made.end_file()
    return made


def test_all_that_was_sent_needs_no_advice() -> None:
    made = account(3, 2)
    assert made.is_at_end
    assert made.advice() is None


def test_an_interrupted_run_says_where_to_go_on() -> None:
    assert account(3, 2, is_open=True).advice() == ("all before line 3 of b was sent; to go on there: --from-line 3 b")
    assert account(3, is_open=True).advice() == ("all before line 4 of a was sent; to go on there: --from-line 4 a b")


def test_a_failure_at_the_end_is_where_to_go_on() -> None:
    made = account(9, is_open=True)
    for number in (6, 7, 8):
        made.fail(number)
    assert made.advice() == "line 7 of a was not sent, nor any after it; to go on there: --from-line 7 a b"


def test_a_failure_of_the_last_lines_is_where_to_go_on_too() -> None:
    made = account(3, 2)
    made.fail(4)
    assert made.advice() == "line 2 of b was not sent, nor any after it; to go on there: --from-line 2 b"


def test_a_failure_between_others_is_named_by_itself() -> None:
    made = account(5, is_open=True)
    made.fail(1)
    assert made.advice() == (
        "line 2 of a was not sent, all others before line 6 of a were: send it by itself; "
        "to go on there: --from-line 6 a b"
    )
    made.fail(3)
    made.fail(4)
    assert str(made.advice()).startswith("lines 2, 4 to 5 of a were not sent, all others before line 6 of a were")


def test_failures_in_several_files_are_named_by_file() -> None:
    made = account(5, 5)
    made.fail(1)
    made.fail(8)
    assert made.advice() == "lines 2 of a and 4 of b were not sent, all others were: send these by themselves"


def test_standard_input_has_to_be_given_again() -> None:
    made = account(2, names=("-",), is_open=True)
    made.fail(1)
    assert made.advice() == (
        "line 2 of standard input was not sent, nor any after it; to go on there: --from-line 2 with the same input"
    )


def test_lines_that_are_left_out_count() -> None:
    made = LineAccount(["a"], 100)
    assert made.skipped == 99
    made.read += 2
    assert made.line(1) == Line(0, 101)
    made.end_file()
    assert made.is_at_end


def test_a_file_without_lines_is_none_of_a_line() -> None:
    made = account(1, 0, 2, names=("a", "empty", "b"))
    assert [made.line(number) for number in range(3)] == [Line(0, 1), Line(2, 1), Line(2, 2)]


def test_the_runs_that_are_named_are_few() -> None:
    made = account(10 * RUNS, is_open=True)
    for number in range(0, 6 * RUNS, 2):
        made.fail(number)
    assert f", {2 * RUNS - 1} of a and others were not sent" in str(made.advice())
    assert f"{2 * RUNS + 1}" not in str(made.advice())
