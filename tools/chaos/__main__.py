"""`make chaos` breaks a cluster of three on purpose, again and again, and looks for what a queue must never do.

Rounds and their seeds are named SEED-FAULT-NUMBER. An interrupted run goes on where it was, until the code changes.
"""

import argparse
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from tools.chaos import page
from tools.chaos.disks import NoDiskError, unmount_below
from tools.chaos.faults import FAULTS
from tools.chaos.namespaces import prefix
from tools.chaos.network import Network, NetworkError, network
from tools.chaos.progress import ROOT, Progress, plan
from tools.chaos.report import complaints, summary
from tools.chaos.round import Result, run_round
from tools.chaos.shim import ShimError, build
from tools.chaos.stage import Stage, StuckError
from tools.clients.processes import OutsideError
from tools.zookeeper.ensemble import install

FOLDER: Final = ROOT / ".cache/chaos"
ROUNDS: Final = 10


def main() -> int:
    asked = _arguments()
    if asked.inside is not None:
        try:
            return _run(asked, Network(asked.inside), Console())
        except (StuckError, OutsideError, ShimError, NoDiskError) as error:
            sys.exit(f"the cluster does not start: {error}")
    if not asked.has_own:
        _go_where_namespaces_are()
    # One that is asked to stop ends as with Ctrl-C, which Python ignores in the background of a shell.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    with _alone(asked.folder):
        try:
            install()
            with network(asked.folder / "network.json") as built:
                # All that has a connection lives in the network's namespaces: addresses are known nowhere else.
                again = [sys.executable, "-m", "tools.chaos", *sys.argv[1:], "--inside", built.prefix]
                temporary = asked.folder / "temporary"
                shutil.rmtree(temporary, ignore_errors=True)
                temporary.mkdir()
                environment = {**os.environ, "TMPDIR": str(temporary)}
                inside = [*built.command(built.hub), *again]
                return subprocess.run(inside, cwd=ROOT, env=environment, check=False).returncode
        except (NetworkError, OutsideError) as error:
            sys.exit(str(error))
        except KeyboardInterrupt:
            return 1
        finally:
            unmount_below(asked.folder)


def _go_where_namespaces_are() -> None:
    try:
        if own := prefix():
            # Nothing can be fetched from there.
            install()
            os.execvp(own[0], [*own, sys.executable, "-m", "tools.chaos", *sys.argv[1:], "--has-own"])
    except (NetworkError, OutsideError) as error:
        sys.exit(str(error))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.chaos", description=__doc__)
    parser.add_argument("--faults", type=_faults, default=list(FAULTS), help=f"of {', '.join(FAULTS)} (all)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each fault (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="what is drawn in a round follows from it (%(default)s)")
    parser.add_argument("--replay", metavar="NAME", help="one round again, as 1-kill-3, and nothing else")
    parser.add_argument(
        "--brief", metavar="NAME", help="one round with fewer clients on a stage without shims, and no report"
    )
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where everything is kept (%(default)s)")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--has-own", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _faults(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in FAULTS]:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: there is no such fault; there are {', '.join(FAULTS)}")
    return names


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Two runs would share folders."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit("another run is under way in this folder")
        unmount_below(folder)
        yield


def _run(asked: argparse.Namespace, hosts: Network, console: Console) -> int:
    if asked.brief is not None:
        [result] = _rounds(hosts, {asked.brief: _fault_of(asked.brief)}, lambda _: None, asked.folder, is_brief=True)
        console.print(_told(result), highlight=False, markup=False)
        return 0 if result.is_good else 1
    progress = Progress(asked.folder / "progress.json")
    if asked.replay is not None:
        todo = {asked.replay: _fault_of(asked.replay)}
    else:
        left_out = [fault for fault in asked.faults if asked.has_own and FAULTS[fault].takes_power]
        if left_out:
            console.print(f"left out, as only root of this machine can attach disks: {', '.join(left_out)}")
        faults = [fault for fault in asked.faults if fault not in left_out]
        todo = plan(faults, asked.rounds, asked.seed)
        todo = {name: fault for name, fault in todo.items() if name not in progress.results}
    columns = (TextColumn("rounds"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Bar(*columns, TextColumn("{task.description}"), console=console) as bar:
        task = bar.add_task("", total=len(todo))
        while todo:
            for result in _rounds(hosts, todo, lambda name: bar.update(task, description=name), asked.folder):
                progress.add(result)
                bar.update(task, advance=1)
                console.print(_told(result), highlight=False, markup=False)
    return _report(list(progress.results.values()), asked.folder, console)


def _fault_of(name: str) -> str:
    return name.partition("-")[2].rpartition("-")[0]


def _rounds(
    hosts: Network, todo: dict[str, str], begin: Callable[[str], None], kept: Path, *, is_brief: bool = False
) -> Iterator[Result]:
    """Rounds on one stage, up to one that something was wrong with: that stage's data stay as they are."""
    folder = kept / "stages" / next(iter(todo))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    hosts.mend()
    shim = None if is_brief else build(kept)
    with_disks = any(FAULTS[fault].takes_power for fault in todo.values())
    with Stage(hosts, folder, shim=shim, with_disks=with_disks) as stage:
        for name, fault in list(todo.items()):
            begin(name)
            shutil.rmtree(kept / "rounds" / name, ignore_errors=True)
            result = run_round(stage, name, fault, kept / "rounds" / name, is_brief=is_brief)
            del todo[name]
            yield result
            if not result.is_good:
                return
    shutil.rmtree(folder)


def _told(result: Result) -> str:
    back = "never" if result.back_seconds is None else f"after {result.back_seconds:.1f} s"
    wrong = "".join(f"\n  {line}" for line in complaints(result))
    return (
        f"{result.name}: {result.role} on host {result.host}; {''.join(f'{one}; ' for one in result.drawn)}"
        f"writes back {back}; {result.counts}; beside, acknowledged and gone: {result.beside}; "
        f"{result.round_seconds:.0f} s{wrong}"
    )


def _report(results: list[Result], folder: Path, console: Console) -> int:
    text = summary(results)
    console.print(text, markup=False)
    page.RESULTS.with_suffix(".md").write_text(text)
    page.RESULTS.write_text(json.dumps([asdict(one) for one in results], indent=1) + "\n")
    page.main()
    if all(one.is_good for one in results):
        return 0
    console.print(f"histories and logs of every round are in {folder / 'rounds'}", markup=False)
    return 1


if __name__ == "__main__":
    sys.exit(main())
