"""Which store a config names."""

from pathlib import Path

import pytest

from penstock.broker.cluster.stores import make_store, refuse_alone
from penstock.broker.config.typed import BrokerConfig
from penstock.machines.cluster import ClusterImage
from penstock.machines.cluster_records import PartitionsCreated, TopicCreated
from penstock.metadata.memory import MemoryStore
from penstock.metadata.remote import RemoteStore
from penstock.metadata.sqlite import SqliteStore
from penstock.metadata.zookeeper import ZookeeperStore
from penstock.storage.data_directory import DataDirectory
from penstock.storage.errors import DirectoryRefusedError
from penstock.storage.files import RealFiles
from penstock.storage.files.memory import MemoryFiles


def config(folder: Path, **values: str) -> BrokerConfig:
    return BrokerConfig.parse({"log.dirs": str(folder), **values})


def test_a_broker_alone_keeps_its_metadata_in_its_folder(tmp_path: Path) -> None:
    assert isinstance(make_store(config(tmp_path / "data"), RealFiles()), SqliteStore)
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700


def test_without_a_disk_it_is_in_memory(tmp_path: Path) -> None:
    assert isinstance(make_store(config(tmp_path), MemoryFiles()), MemoryStore)


def test_zookeeper_is_named_by_the_config(tmp_path: Path) -> None:
    named = config(tmp_path, **{"zookeeper.connect": "127.0.0.1:2181/p", "zookeeper.session.timeout.ms": "4000"})
    store = make_store(named, RealFiles())
    assert isinstance(store, ZookeeperStore)
    assert store._session_seconds == 4.0


def test_the_store_of_another_process_is_named_by_the_config(tmp_path: Path) -> None:
    store = make_store(config(tmp_path, **{"penstock.metadata.socket": str(tmp_path / "socket")}), RealFiles())
    assert isinstance(store, RemoteStore)


def test_a_folder_of_a_cluster_is_not_begun_anew_as_a_broker_alone(tmp_path: Path) -> None:
    DataDirectory(str(tmp_path / "logs"), RealFiles(), cluster_id="elsewhere").close()
    with pytest.raises(DirectoryRefusedError, match=r"set zookeeper\.connect as that broker did"):
        make_store(config(tmp_path), RealFiles())
    assert not (tmp_path / "metadata.sqlite").exists()


def test_a_broker_alone_is_refused_while_others_hold_partitions(tmp_path: Path) -> None:
    image, topic_id = ClusterImage(), bytes(15) + b"\1"
    image.apply_all([TopicCreated(topic_id, "orders", {}), PartitionsCreated(topic_id, 0, ((0,), (1,)))])
    with pytest.raises(DirectoryRefusedError, match="broker 1 holds 1 partition"):
        refuse_alone(config(tmp_path), image)
    for elsewhere in ({"penstock.metadata.socket": "/socket"}, {"zookeeper.connect": "zk:2181/p"}):
        refuse_alone(config(tmp_path, **elsewhere), image)
    refuse_alone(config(tmp_path), ClusterImage())


def test_a_folder_of_a_cluster_expects_that_cluster_in_zookeeper(tmp_path: Path) -> None:
    named = config(tmp_path, **{"zookeeper.connect": "127.0.0.1:2181/p"})
    store = make_store(named, RealFiles())
    assert isinstance(store, ZookeeperStore)
    assert store._if_absent is None
    DataDirectory(str(tmp_path / "logs"), RealFiles(), cluster_id="ours").close()
    store = make_store(named, RealFiles())
    assert isinstance(store, ZookeeperStore)
    assert store._if_absent is not None
    assert "belongs to cluster ours" in store._if_absent
    assert "penstock cluster import" in store._if_absent
    (tmp_path / "metadata.sqlite").touch()
    store = make_store(named, RealFiles())
    assert isinstance(store, ZookeeperStore)
    assert store._if_absent is not None
    assert "penstock cluster adopt" in store._if_absent
