"""The order in which brokers are asked what any of them can answer."""

from penstock.client.cluster.candidates import PATIENCE_SECONDS, Candidate, in_order
from penstock.client.metadata import Address


def at(port: int, **more: object) -> Candidate:
    return Candidate(address=Address("127.0.0.1", port), **more)  # type: ignore[arg-type]


def ports(*candidates: Candidate) -> list[int]:
    return [each.address.port for each in in_order(candidates)]


def test_the_open_connection_with_the_least_to_do_comes_first() -> None:
    assert ports(at(1), at(2, is_open=True, in_flight=3), at(3, is_open=True, in_flight=1)) == [3, 2, 1]


def test_brokers_that_the_cluster_names_come_before_addresses_that_the_user_gave() -> None:
    assert ports(at(1, is_known=False), at(2), at(3, is_known=False, is_open=True)) == [3, 2, 1]


def test_a_silent_broker_comes_after_all_others() -> None:
    silent = at(1, is_open=True, silent_seconds=PATIENCE_SECONDS)
    assert ports(silent, at(2, is_open=True, in_flight=50), at(3), at(4, is_known=False)) == [2, 3, 4, 1]


def test_a_broker_that_was_asked_just_now_is_not_silent() -> None:
    asked = at(1, is_open=True, silent_seconds=PATIENCE_SECONDS - 0.01)
    assert not asked.is_silent
    assert ports(at(2), asked) == [1, 2]


def test_of_silent_brokers_the_one_with_the_shortest_silence_comes_first() -> None:
    assert ports(at(1, silent_seconds=9.0, is_open=True), at(2, silent_seconds=2.0), at(3, silent_seconds=5.0)) == [
        2,
        3,
        1,
    ]


def test_equals_keep_the_order_in_which_they_were_drawn() -> None:
    assert ports(at(3), at(1), at(2)) == [3, 1, 2]
