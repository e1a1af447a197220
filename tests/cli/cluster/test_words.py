"""How findings name things."""

from penstock.cli.cluster import words


def test_brokers_are_named_as_in_a_sentence() -> None:
    assert [words.brokers(numbers) for numbers in ([3], [1, 2], [1, 2, 3])] == [
        "broker 3",
        "brokers 1 and 2",
        "brokers 1, 2 and 3",
    ]
    assert [words.one_of(numbers) for numbers in ([3], [1, 2])] == ["broker 3", "one of brokers 1 and 2"]
