"""How a broker becomes a member of its cluster, and what it does when others may take it for dead."""

import asyncio

import pytest

from penstock.broker.cluster import registration
from penstock.machines.registration import Registration
from penstock.metadata.store import Contact, StoreRefusedError
from tests.broker.cluster.site import Site, sites
from tests.broker.harness import in_loop, turns, until


@in_loop
async def test_a_broker_is_served_when_its_own_registration_is_applied_and_not_before() -> None:
    async with sites() as [controller]:
        controller.store.gate.clear()
        other = Site(controller.shared, 1)
        starting = asyncio.create_task(other.start())
        await turns(100)
        assert not starting.done()
        assert other.registration.broker_epoch > controller.registration.broker_epoch
        controller.store.gate.set()
        await starting
        assert other.cluster.image.brokers[1].broker_epoch == other.registration.broker_epoch
        await other.stop()


@in_loop
async def test_a_broker_that_waits_for_its_registration_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(registration, "PATIENCE_SECONDS", 0.01)
    async with sites() as [controller]:
        controller.store.gate.clear()
        other = Site(controller.shared, 1)
        starting = asyncio.create_task(other.start())
        await until(lambda: "waits until the controller has registered it" in caplog.text)
        controller.store.gate.set()
        await starting
        await other.stop()


@in_loop
async def test_the_controller_says_which_broker_came_with_logs_that_it_cannot_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with sites() as [controller]:
        other = Site(controller.shared, 1, offline_logs=3)
        await other.start()
        [told] = [record for record in caplog.records if "cannot open" in record.message]
        assert (told.broker_id, told.logs) == (1, 3)  # type: ignore[attr-defined]
        await other.stop()


@in_loop
async def test_two_brokers_with_one_id_are_refused_with_what_to_do() -> None:
    async with sites() as [site]:
        other = Site(site.shared, 0, folder="another")
        await other.store.open()
        with pytest.raises(StoreRefusedError, match="broker 0 is in the cluster already, with another data folder"):
            await other.registration.register(was_clean=True)
        await other.store.close()
        assert site.live == {0}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_an_address_that_no_other_machine_can_reach_is_refused(host: str) -> None:
    @in_loop
    async def run() -> None:
        async with sites() as [site]:
            site.registration._listeners = lambda: {"PLAINTEXT": (host, 9092)}
            with pytest.raises(StoreRefusedError, match=r"set advertised\.listeners"):
                await site.registration.register(was_clean=True)

    run()


@in_loop
async def test_doubtful_contact_is_told_and_changes_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    async with sites(2) as (_, other):
        epoch = other.registration.broker_epoch
        other.store.cut()
        await until(lambda: other.registration.contact is Contact.DOUBTFUL)
        assert "serves what it leads" in caplog.text
        assert other.fencings == []
        other.store.mend()
        await until(lambda: other.registration.contact is Contact.GOOD)
        await turns()
        assert other.registration.broker_epoch == epoch
        assert other.fencings == []


@in_loop
async def test_after_a_lost_session_a_broker_is_fenced_until_it_is_registered_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with sites(2) as (controller, other):
        await controller.create("orders", 2)
        epoch = other.registration.broker_epoch
        other.store.cut()
        await until(lambda: other.fencings == [True])
        assert "acks=all only" in caplog.text
        await until(lambda: controller.live == {0})
        controller.store.gate.clear()
        other.store.mend()
        await until(lambda: other.registration.broker_epoch > epoch)
        await turns()
        assert other.fencings == [True], "it is not registered yet"
        controller.store.gate.set()
        await until(lambda: other.fencings == [True, False])
        assert not other.registration.is_fenced
        assert other.live == {0, 1}
        assert sorted(p.leader for p in other.cluster.image.topics["orders"].partitions) == [0, 1]


@in_loop
async def test_a_session_that_ended_unnoticed_is_registered_anew() -> None:
    async with sites(2) as (controller, other):
        epoch = other.registration.broker_epoch
        controller.shared.expire(other.store)
        await until(lambda: other.fencings == [True, False])
        assert other.registration.broker_epoch > epoch
        assert other.live == {0, 1}


@in_loop
async def test_an_unclean_stop_is_told_again_until_the_cluster_knows_of_it() -> None:
    async with sites(2) as (controller, other):
        await controller.create("orders", 2)
        await other.die()
        controller.store.gate.clear()
        back = Site(controller.shared, 1)
        starting = asyncio.create_task(back.start(was_clean=False))
        await until(lambda: len(back.tasks) == 3)
        epoch = back.registration.broker_epoch
        controller.shared.expire(back.store)
        await until(lambda: back.registration.broker_epoch > epoch)
        details = controller.shared.table.members()[1]
        registered = Registration.of_member(1, details.broker_epoch, folder=details.folder, details=details.details)
        assert not registered.was_clean
        controller.store.gate.set()
        await starting
        await back.stop()


@in_loop
async def test_contact_that_is_lost_again_while_registering_is_waited_for() -> None:
    async with sites(2) as (controller, other):
        controller.store.gate.clear()
        controller.shared.expire(other.store)
        await until(lambda: other.fencings == [True])
        await turns()
        other.store.cut()
        await until(lambda: other.registration.contact is Contact.LOST)
        controller.store.gate.set()
        other.store.mend()
        await until(lambda: other.fencings == [True, False])
        await until(lambda: controller.live == {0, 1})


@in_loop
async def test_a_broker_that_loses_its_session_before_it_is_registered_waits_for_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with sites() as [controller]:
        other = Site(controller.shared, 1)
        await other.store.open()
        await other.cluster.load()
        other.store.cut()
        await until(lambda: other.store.contact is Contact.LOST)
        registering = asyncio.create_task(other.registration.register(was_clean=True))
        await until(lambda: "this broker waits, and registers then" in caplog.text)
        assert not registering.done()
        other.store.mend()
        await registering
        await until(lambda: controller.live == {0, 1})
        await other.store.close()


@in_loop
async def test_a_broker_whose_id_was_taken_meanwhile_ends_with_what_to_do() -> None:
    async with sites(2) as (controller, other):
        other.store.cut()
        await until(lambda: controller.live == {0})
        thief = Site(controller.shared, 1, folder="another")
        await thief.start()
        other.store.mend()
        with pytest.raises(StoreRefusedError, match="broker 1 is in the cluster already"):
            await other.tasks[2]
        await thief.stop()
