"""Where nodes lie and what connect strings say."""

import pytest

from penstock.metadata.store import StoreRefusedError
from penstock.metadata.zookeeper import layout
from penstock.metadata.zookeeper.layout import Cluster, Controller


@pytest.mark.parametrize(
    ("connect", "names", "chroot"),
    [
        ("zk1", "zk1:2181", ""),
        ("zk1:2182/", "zk1:2182", ""),
        ("zk1:1,zk2:2/penstock", "zk1:1,zk2:2", "/penstock"),
        (" zk1:1 , zk2/a/b/ ", "zk1:1,zk2:2181", "/a/b"),
        ("[::1]:2181,127.0.0.1/x", "[::1]:2181,127.0.0.1:2181", "/x"),
    ],
)
def test_a_connect_string_names_hosts_and_a_chroot(connect: str, names: str, chroot: str) -> None:
    address = layout.parse(connect)

    assert address.names == names
    assert address.chroot == chroot
    assert layout.parse(address.names + address.chroot) == address


@pytest.mark.parametrize(
    ("connect", "reason"),
    [
        ("", "a host is missing"),
        ("zk1:1,", "a host is missing"),
        ("/penstock", "a host is missing"),
        ("zk1:port", "is no host with a port"),
        ("zk1:1;zk2:1", "is no host with a port"),
        ("zk1:0", "0 is no port"),
        ("zk1:65536", "65536 is no port"),
        ("::1:2181", "is no host with a port"),
        ("zk1:1/penstock,zk2:1/penstock", "the chroot stands once, after the last host"),
        ("zk1:1//penstock", "is no path of nodes"),
        ("zk1:1/a/../b", "is no path of nodes"),
        ("zk1:1/a /b", "is no path of nodes"),
        ("zk1:1/\x00", "is no path of nodes"),
        ("zookeeper://zk1:2181", "is no path of nodes"),
    ],
)
def test_a_wrong_connect_string_is_refused_with_an_example(connect: str, reason: str) -> None:
    with pytest.raises(StoreRefusedError, match=reason) as caught:
        layout.parse(connect)
    assert "write it as zk1:2181,zk2:2181,zk3:2181/penstock" in str(caught.value)


def test_entries_and_chunks_are_named_by_numbers_of_one_length() -> None:
    assert layout.entry_path(7) == "/log/00000000000000000007"
    assert layout.chunk_path(12, 3) == "/snapshot/00000000000000000012/0003"


@pytest.mark.parametrize("size", [0, 1, layout.CHUNK_BYTES, layout.CHUNK_BYTES + 1, 3 * layout.CHUNK_BYTES])
def test_chunks_are_the_whole_snapshot_and_never_too_large(size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)

    chunks = layout.chunks_of(data[:size])

    assert b"".join(chunks) == data[:size]
    assert len(chunks) == max(1, -(-size // layout.CHUNK_BYTES))
    assert max(len(chunk) for chunk in chunks) <= layout.CHUNK_BYTES


def test_what_is_written_can_be_read() -> None:
    cluster, controller = Cluster(1, "id", bytes(32)), Controller(3, 7)

    assert layout.read(Cluster, layout.write(cluster), where="/x") == cluster
    assert layout.read(Controller, layout.write(controller), where="/x") == controller


@pytest.mark.parametrize("data", [b"", b"null", b'{"version":"1","id":"of Kafka"}', b"\xff"])
def test_what_another_program_wrote_is_refused(data: bytes) -> None:
    with pytest.raises(StoreRefusedError, match=r"^/kafka/cluster in ZooKeeper cannot be read"):
        layout.read(Cluster, data, where="/kafka/cluster")


def test_a_chroot_with_something_else_in_it_is_refused() -> None:
    layout.check_is_free([], where="/penstock")
    layout.check_is_free(["zookeeper"], where="/")
    with pytest.raises(StoreRefusedError, match=r"^/kafka .*\(admin, brokers\); .* for example /kafka/penstock$"):
        layout.check_is_free(["brokers", "admin"], where="/kafka")
    with pytest.raises(StoreRefusedError, match=r"\(a, b, c, d, e, …\); .* for example /penstock$"):
        layout.check_is_free("gfedcba", where="/")
