"""The remote store when its server is away, stands still or is another program."""

import asyncio
from pathlib import Path

import pytest

from penstock.metadata.remote import RemoteStore
from penstock.metadata.remote.wire import Greeting, Reply, frame, raw
from penstock.metadata.store import Contact, OutcomeUnknownError, SessionLostError, StoreRefusedError
from tests.metadata.scenario import scenario
from tests.metadata.stores import RemoteStores
from tools.fuzz_frames.warp_loop import WarpLoop


@pytest.fixture
def stores(request: pytest.FixtureRequest) -> RemoteStores:
    return RemoteStores(request)


@scenario
async def test_a_store_waits_for_its_server_and_names_the_socket_in_the_end(stores: RemoteStores) -> None:
    await stores.server.close()
    opening = asyncio.create_task(stores.session())
    asyncio.get_running_loop().call_later(3, lambda: server.append(asyncio.ensure_future(stores.server.open())))
    server: list[asyncio.Future[None]] = []
    store = await opening
    assert await store.members() == {}
    await server[0]

    with pytest.raises(StoreRefusedError, match=r"no metadata store answers at .*missing; start its owner"):
        await RemoteStore(str(stores.socket) + "-missing").open()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (frame(Reply(1, None, raw(Greeting(99, 5)))), "is another Penstock; restart it and its brokers"),
        (b"SSH-2.0-OpenSSH\r\n", "is not the socket of a store server: a frame of"),
        (b"\x00\x00\x00\x01\x01", "is not the socket of a store server"),
    ],
)
@scenario
async def test_a_server_of_another_kind_is_refused(tmp_path: Path, answer: bytes, message: str) -> None:
    is_over = asyncio.Event()

    async def answer_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await reader.read()
        writer.close()
        is_over.set()

    path = str(tmp_path / "store")
    async with await asyncio.start_unix_server(answer_all, path):
        with pytest.raises(StoreRefusedError, match=message):
            await RemoteStore(path).open()
        await is_over.wait()


@scenario
async def test_contact_is_doubtful_for_as_long_as_the_server_is_away(stores: RemoteStores) -> None:
    store = await stores.session()
    epoch = await store.take_controller_lease(1)
    assert epoch is not None
    await stores.server.close()
    await store.wait_for_contact(Contact.GOOD, 1)
    assert store.contact is Contact.DOUBTFUL
    for _ in range(3):
        with pytest.raises(SessionLostError):
            await store.members()
        with pytest.raises(SessionLostError):
            await store.append(epoch, 1, b"never sent")
        await asyncio.sleep(stores.session_seconds)
        assert (store.contact, store.session) == (Contact.DOUBTFUL, 1)

    await stores.server.open()
    await store.wait_for_contact(Contact.DOUBTFUL, 1)

    assert (store.contact, store.session) == (Contact.GOOD, 2)
    assert await store.members() == {}
    assert await store.entries(0) == []


@scenario
async def test_calls_wait_for_a_server_that_is_back_within_the_session(stores: RemoteStores) -> None:
    store = await stores.session()
    epoch = await store.take_controller_lease(1)
    assert epoch is not None
    await stores.server.close()
    calls = [
        asyncio.create_task(call)
        for call in (store.register(1, b"", folder="a"), store.wait_for_entries(0), store.append(epoch, 1, b"one"))
    ]
    await asyncio.sleep(stores.session_seconds / 2)
    assert not any(call.done() for call in calls)

    await stores.server.open()

    await asyncio.gather(*calls)
    assert store.session == 2
    assert set(await store.members()) == {1}
    assert await store.entries(0) == [(1, b"one")]


@scenario
async def test_an_append_that_loses_every_connection_ends_with_an_unknown_outcome(stores: RemoteStores) -> None:
    store = await stores.session()
    epoch = await store.take_controller_lease(1)
    assert epoch is not None

    with pytest.raises(OutcomeUnknownError):
        await stores.append_and_lose(store, ["request"] * 1000, epoch, 1, b"one")

    stores.lose_nothing(store)
    assert await store.entries(0) == []


@scenario
async def test_a_server_that_stood_still_ends_no_session(stores: RemoteStores) -> None:
    store = await stores.session()
    await store.register(1, b"", folder="a")
    loop = asyncio.get_running_loop()
    assert isinstance(loop, WarpLoop)

    loop.pass_time(stores.session_seconds * 4)
    await asyncio.sleep(stores.session_seconds * 3)

    assert store.session == 1
    assert set(await store.members()) == {1}
