"""ZooKeeper as our tools run it: it serves, nodes come and go one by one, and nothing is left."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.metadata.store import Contact
from penstock.metadata.zookeeper import ZookeeperStore
from tests.waiting import in_loop
from tools.clients.packages import ROOT
from tools.fixtures.kafka import free_ports
from tools.zookeeper.ensemble import Ensemble, install


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@in_loop
async def test_a_node_serves_is_paused_and_killed_and_leaves_nothing(temporary: Path) -> None:
    await asyncio.to_thread(install)
    with Ensemble(nodes=1) as ensemble:
        [node] = ensemble.nodes
        assert node.mode() == "standalone"
        store = ZookeeperStore(f"{ensemble.connect}/penstock", session_seconds=1)
        await store.open()
        node.pause()
        await store.wait_for_contact(Contact.GOOD, 1)
        node.resume()
        while (contact := store.contact) is not Contact.GOOD:
            await store.wait_for_contact(contact, store.session)
        await store.close()
        node.kill()
        assert not node.is_running
        node.start()
        await asyncio.to_thread(ensemble.wait_until_it_serves)
        node.stop()
        assert node.mode() is None
        node.start()
    assert not node.is_running
    assert list(temporary.iterdir()) == []


def test_the_command_serves_until_it_is_interrupted(temporary: Path) -> None:
    install()
    port = free_ports(1)[0]
    command = [sys.executable, "-m", "tools.zookeeper", "--nodes", "1", "--port", str(port)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        assert process.stdout is not None
        told = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0
    assert re.fullmatch(rf"ZooKeeper serves at 127\.0\.0\.1:{port}; Ctrl-C ends it, .*\n", told)
    assert list(temporary.iterdir()) == []
