"""The notes of a replay: what counts, and what is left of one that is done."""

from pathlib import Path

from penstock.spark.lake.replay_notes import CALL, FOLDER, Notes, State


def test_notes_without_what_was_asked_for_are_of_a_replay_that_is_done(tmp_path: Path) -> None:
    notes = Notes.open(str(tmp_path), "name")
    asked = {"topic": "orders"}
    assert (notes.began_ms(), notes.states(), notes.read(1)) == (None, {}, None)
    notes.begin(asked, 1000)
    notes.write(1, State(20, 15))
    again = Notes.open(str(tmp_path), "name")
    assert (again.began_ms(), again.states()) == (1000, {1: State(20, 15)})
    (tmp_path / FOLDER / "name" / CALL).unlink()
    assert again.began_ms() is None
    again.begin(asked, 2000)
    assert (again.began_ms(), again.states()) == (2000, {})
    again.forget()
    again.forget()
    assert list((tmp_path / FOLDER).iterdir()) == []
