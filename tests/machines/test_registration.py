"""What a broker says about itself, on its way through the store, and what is said about a broker in a wrong folder."""

import msgspec
import pytest

from penstock.machines.cluster import ClusterImage
from penstock.machines.cluster_records import (
    BrokerRegistered,
    PartitionImage,
    PartitionsChanged,
    PartitionsCreated,
    TopicCreated,
)
from penstock.machines.log_ends import LogEnd
from penstock.machines.registration import DamagedDetailsError, Registration, encode_details, folder_problem

LISTENERS = {"PLAIN": ("broker-1", 9092), "INTERNAL": ("10.0.0.1", 9093)}


@pytest.mark.parametrize("rack", [None, "a"])
@pytest.mark.parametrize("was_clean", [False, True])
@pytest.mark.parametrize("offline_logs", [0, 3])
def test_details_come_back_from_the_store(rack: str | None, was_clean: bool, offline_logs: int) -> None:
    details = encode_details(listeners=LISTENERS, rack=rack, was_clean=was_clean, offline_logs=offline_logs)

    found = Registration.of_member(1, 7, folder="f", details=details)

    assert found == Registration(1, 7, LISTENERS, rack, "f", was_clean, offline_logs)


def test_a_loss_of_power_and_how_the_broker_flushes_come_back_from_the_store() -> None:
    details = encode_details(listeners=LISTENERS, rack=None, was_clean=False, may_lack_unflushed=True, flush="os")
    found = Registration.of_member(1, 7, folder="f", details=details)
    assert (found.may_lack_unflushed, found.flush) == (True, "os")


def test_details_of_an_older_penstock_say_nothing_of_a_loss_of_power() -> None:
    details = msgspec.msgpack.encode(["0.1.0", LISTENERS, None, False, 0, []])
    found = Registration.of_member(1, 7, folder="f", details=details)
    assert (found.may_lack_unflushed, found.flush) == (False, "ack")


def test_details_of_a_newer_penstock_may_have_more_items() -> None:
    details = msgspec.msgpack.encode(["9.8.7", LISTENERS, None, True, 0, [], False, "ack", {"later": 1}])

    assert Registration.of_member(1, 7, folder="f", details=details).was_clean


@pytest.mark.parametrize(
    "details", [b"", b"\xff", b"{}", msgspec.msgpack.encode(["0.1.0", {"PLAIN": "h"}, None, True])]
)
def test_details_that_cannot_be_read_name_the_broker(details: bytes) -> None:
    with pytest.raises(DamagedDetailsError, match=r"registration of broker 4 .* restart that broker"):
        Registration.of_member(4, 7, folder="f", details=details)


def test_a_broker_in_another_folder_is_explained() -> None:
    image = ClusterImage()
    image.apply_all(
        [
            TopicCreated(b"o" * 16, "orders", {}),
            PartitionsCreated(b"o" * 16, 0, ((1,),) * 4 + ((2,), (1, 2))),
            BrokerRegistered(1, 7, LISTENERS, None, "new", "old"),
            BrokerRegistered(2, 8, LISTENERS, None, "same", "same"),
        ]
    )

    problem = folder_problem(image, 1)

    assert problem is not None
    assert "the data folder new, but its replicas are in the data folder old" in problem
    assert "4 partitions that only it has (orders-0, orders-1, orders-2, …)" in problem
    assert folder_problem(image, 2) is None
    assert folder_problem(image, 3) is None


def test_ends_of_logs_come_back_from_the_store() -> None:
    ends = {(b"o" * 16, 3): LogEnd(1, 7, 2)}
    details = encode_details(listeners=LISTENERS, rack=None, was_clean=True, log_ends=ends)
    assert Registration.of_member(1, 7, folder="f", details=details).log_ends == ends


def test_details_of_an_older_penstock_have_no_ends_of_logs() -> None:
    details = msgspec.msgpack.encode(["0.1.0", LISTENERS, None, True, 0])
    assert Registration.of_member(1, 7, folder="f", details=details).log_ends == {}


def test_a_broker_in_another_folder_after_an_import_is_explained() -> None:
    image = ClusterImage()
    image.apply_all(
        [
            TopicCreated(b"o" * 16, "orders", {}),
            PartitionsChanged(b"o" * 16, (PartitionImage(0, (1, 2), (), (), -1, 3, 5),)),
            BrokerRegistered(1, 7, LISTENERS, None, "new", "old"),
        ]
    )
    problem = folder_problem(image, 1)
    assert problem is not None
    assert "1 partitions (orders-0) were imported" in problem
    assert "penstock topic elect TOPIC --unclean" in problem
