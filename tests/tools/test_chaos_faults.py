"""The fault suite's own parts: who is hit, which ways are cut, what is kept and told; and one real round."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tools.chaos import progress as progress_module
from tools.chaos.faults import FAULTS, MIXED
from tools.chaos.namespaces import prefix
from tools.chaos.network import HOSTS, Network, NetworkError, alone, both_ways, deaf, mute, network, remove_left, ring
from tools.chaos.progress import ROOT, Progress, plan
from tools.chaos.report import SHOWN, summary
from tools.chaos.round import Result
from tools.chaos.scene import Role, host_of
from tools.chaos.view import Replicas, View
from tools.clients.packages import install_commands
from tools.clients.processes import OutsideError

ALL = frozenset(HOSTS)
WHOLE = Replicas(leader=2, isr=ALL, all=ALL)


def view(**partitions: Replicas) -> View:
    return View(1, ALL, {(topic, 0): replicas for topic, replicas in partitions.items()}, coordinator=3)


@pytest.mark.parametrize("seed", range(5))
def test_a_role_is_found_where_it_is_played(seed: int) -> None:
    seen, chance = view(orders=WHOLE, other=Replicas(1, ALL, ALL)), Random(seed)
    assert host_of(Role.LEADER, seen, "orders", chance) == 2
    assert host_of(Role.FOLLOWER, seen, "orders", chance) in (1, 3)
    assert host_of(Role.CONTROLLER, seen, "orders", chance) == 1
    assert host_of(Role.COORDINATOR, seen, "orders", chance) == 3


def test_a_cluster_is_whole_when_all_brokers_are_there_and_all_replicas_in_sync() -> None:
    assert view(orders=WHOLE).is_whole(ALL)
    for lacking in (
        view(orders=Replicas(2, frozenset({1, 2}), ALL)),
        view(orders=Replicas(-1, ALL, ALL)),
        View(1, frozenset({1, 2}), {}, None),
        View(-1, ALL, {}, None),
    ):
        assert not lacking.is_whole(ALL)
        assert lacking.lacks(ALL) != "nothing"


def test_cuts_close_the_ways_that_they_name() -> None:
    assert both_ways(1, 2) == {(1, 2), (2, 1)}
    assert alone(1) == {(1, 2), (2, 1), (1, 3), (3, 1)}
    assert mute(1) == {(1, 2), (1, 3)}
    assert deaf(1) == {(2, 1), (3, 1)}
    assert ring(1) == {(1, 3), (2, 1), (3, 2)}
    assert ring(-1) == {(1, 2), (2, 3), (3, 1)}


def test_every_fault_has_its_turn_before_one_has_its_next() -> None:
    names = list(plan(["kill", "wipe"], rounds=2, seed=7))
    assert names == ["7-kill-1", "7-wipe-1", "7-kill-2", "7-wipe-2"]


def test_a_run_goes_on_where_it_was_until_the_code_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "progress.json"
    done = Result("1-kill-1", "kill", role="leader", back_seconds=5.5, counts={"ok": 3})
    Progress(path).add(done)
    assert Progress(path).results == {"1-kill-1": done}
    monkeypatch.setattr(progress_module, "digest", lambda: "other")
    assert Progress(path).results == {}


def test_the_report_has_median_and_worst_of_each_fault_and_names_what_is_wrong() -> None:
    gone = {"acks1": [1000, 2], "os": [900, 0]}
    good = [
        Result(f"1-kill-{number}", "kill", back_seconds=float(number), pause_seconds=1.0, beside=gone)
        for number in (1, 2, 9)
    ]
    bad = Result("1-wipe-1", "wipe", "leader", 2, problem="stuck", anomalies=[f"lost: {n}" for n in range(SHOWN + 2)])
    told = summary([*good, bad])
    assert "| kill | kill -9 of a broker | 3 | 2.0 | 9.0 | 1.0 | 1.0 | 0 | 0 | 6 of 3,000 | 0 of 2,700 |" in told
    assert f"| wipe | kill -9 of a broker, and an empty disk | 1 | – | – | – | – | {SHOWN + 2} | 1 | – | – |" in told
    assert "round 1-wipe-1 (leader on host 2): stuck" in told
    assert f"lost: {SHOWN - 1}" in told
    assert "round 1-wipe-1 (leader on host 2): 2 more" in told


def test_what_a_killed_run_has_left_is_removed_by_its_record_and_nothing_else_is(tmp_path: Path) -> None:
    record = tmp_path / "network.json"
    remove_left(record)
    record.write_text('{"prefix": "penstock-none"}')
    remove_left(record)
    assert not record.exists()
    assert Network("penstock-1").namespaces() == ["penstock-1-hub", "penstock-1-1", "penstock-1-2", "penstock-1-3"]


def test_the_command_refuses_a_fault_that_there_is_not() -> None:
    command = [sys.executable, "-m", "tools.chaos", "--faults", "kill,earthquake"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "earthquake: there is no such fault" in done.stderr
    assert all(name in done.stderr for name in FAULTS)


def test_faults_that_are_mixed_are_faults_and_each_group_has_its_own() -> None:
    names = [name for group in MIXED.values() for name in group]
    assert len(names) == len(set(names))
    assert set(names) <= set(FAULTS)
    assert not any(FAULTS[name].takes_power for name in names)


def why_no_network(folder: Path) -> str:
    """What keeps this machine from having network namespaces; nothing if it can have them."""
    if sys.platform != "linux":
        return "network namespaces need Linux"
    try:
        asyncio.run(install_commands("ip"))
        if not prefix():
            with network(folder / "network.json"):
                pass
        return ""
    except (NetworkError, OutsideError) as error:
        return str(error)


@pytest.mark.timeout(420)
def test_clients_see_no_anomaly_while_a_leader_is_killed_and_another_host_is_cut_off(tmp_path: Path) -> None:
    """The short form of `make chaos`."""
    if reason := why_no_network(tmp_path):
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    folder = tmp_path / "chaos"
    command = [sys.executable, "-m", "tools.chaos", "--brief", "1-kill-cut-1", "--folder", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1-kill-cut-1: leader on host" in done.stdout
