"""Names and values of settings as tests write them."""

from penstock.testing.settings import by_name


def test_keywords_stand_for_dotted_names() -> None:
    assert by_name({"num_partitions": 3, "log.dirs": "/data"}) == {"num.partitions": "3", "log.dirs": "/data"}


def test_values_of_python_are_written_as_settings_have_them() -> None:
    values = {"a": True, "b": False, "c": ["compact", "delete"], "d": (1, 2), "e": 1.5}
    assert by_name(values) == {"a": "true", "b": "false", "c": "compact,delete", "d": "1,2", "e": "1.5"}
