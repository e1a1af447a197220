"""The rules of membership and of the lease, where a new epoch takes time and sessions end meanwhile."""

import asyncio

import pytest

from penstock.metadata.sessions import Session, SessionTable
from penstock.metadata.store import Member, SessionLostError, StoreClosedError, StoreRefusedError
from tests.metadata.scenario import scenario
from tests.waiting import turns


class Epochs:
    """Gives epochs away, each after a turn of the loop or when told to."""

    def __init__(self) -> None:
        self.newest = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def __call__(self) -> int:
        self.newest += 1
        epoch = self.newest
        await asyncio.sleep(0)
        await self.may_answer.wait()
        return epoch


async def register(
    table: SessionTable, session: Session, epochs: Epochs, *, folder: str, patience_seconds: float = 0
) -> int:
    return await table.register(session, 1, b"", folder=folder, patience_seconds=patience_seconds, new_epoch=epochs)


@scenario
async def test_of_two_brokers_with_one_id_that_register_at_once_one_is_refused() -> None:
    table, epochs = SessionTable(), Epochs()

    outcomes = await asyncio.gather(
        *(register(table, Session(), epochs, folder=folder) for folder in "ab"), return_exceptions=True
    )

    assert outcomes[0] == 1
    assert isinstance(outcomes[1], StoreRefusedError)
    assert table.members() == {1: Member(1, b"", "a")}


@scenario
async def test_a_broker_waits_for_the_place_of_another_that_is_about_to_go() -> None:
    table, epochs = SessionTable(), Epochs()
    first = Session()
    await register(table, first, epochs, folder="a")
    waiting = asyncio.create_task(register(table, Session(), epochs, folder="b", patience_seconds=60))
    await turns()
    assert not waiting.done()

    table.end(first, SessionLostError)

    assert await waiting == 2
    assert table.members() == {1: Member(2, b"", "b")}


@pytest.mark.parametrize("error", [SessionLostError, StoreClosedError])
@scenario
async def test_a_session_that_ends_while_it_registers_or_takes_the_lease_holds_nothing(
    error: type[SessionLostError] | type[StoreClosedError],
) -> None:
    table, epochs, session = SessionTable(), Epochs(), Session()
    epochs.may_answer.clear()
    calls = [
        asyncio.create_task(register(table, session, epochs, folder="a")),
        asyncio.create_task(table.take_lease(session, 1, new_epoch=epochs)),
    ]
    await turns()

    table.end(session, error)
    epochs.may_answer.set()

    for call in calls:
        with pytest.raises(error):
            await call
    assert table.members() == {}
    assert table.controller() is None


@scenario
async def test_a_session_that_ends_while_it_waits_for_a_place_is_told() -> None:
    table, epochs, session = SessionTable(), Epochs(), Session()
    await register(table, Session(), epochs, folder="a")
    waiting = asyncio.create_task(register(table, session, epochs, folder="b", patience_seconds=60))
    await turns()

    table.end(session, StoreClosedError)

    with pytest.raises(StoreClosedError):
        await waiting


@scenario
async def test_no_second_epoch_is_made_while_one_session_takes_the_lease() -> None:
    table, epochs = SessionTable(), Epochs()

    outcomes = await asyncio.gather(
        *(table.take_lease(Session(), broker_id, new_epoch=epochs) for broker_id in range(5))
    )

    assert outcomes == [1, None, None, None, None]
    assert epochs.newest == 1
    assert table.controller() == (0, 1)


@scenario
async def test_the_lease_of_another_session_is_not_the_same_brokers_lease() -> None:
    table, epochs = SessionTable(), Epochs()
    assert await table.take_lease(Session(), 1, new_epoch=epochs) == 1

    assert await table.take_lease(Session(), 1, new_epoch=epochs) is None


@scenario
async def test_the_lease_goes_with_the_process_whose_place_its_successor_takes() -> None:
    table, epochs = SessionTable(), Epochs()
    dead, alive = Session(), Session()
    await register(table, dead, epochs, folder="a")
    await table.take_lease(dead, 1, new_epoch=epochs)

    await register(table, alive, epochs, folder="a")

    assert table.controller() is None
    table.end(dead, SessionLostError)
    assert table.epochs() == {1: 3}
