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
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from tools.chaos import page
from tools.chaos.disks import NoDiskError, unmount_below
from tools.chaos.faults import FAULTS
from tools.chaos.namespaces import prefix
from tools.chaos.network import Network, NetworkError, network
from tools.chaos.progress import ROOT, Progress, plan, turns
from tools.chaos.report import comparison, complaints, summary
from tools.chaos.round import Result, run_round
from tools.chaos.shim import ShimError
from tools.chaos.stage import StuckError
from tools.chaos.systems import PENSTOCK, SYSTEMS, install
from tools.clients.processes import OutsideError
from tools.fixtures.kafka import version

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
        _go_where_namespaces_are(asked.systems)
    # One that is asked to stop ends as with Ctrl-C, which Python ignores in the background of a shell.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    with _alone(asked.folder):
        try:
            install(asked.systems)
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


def _go_where_namespaces_are(systems: list[str]) -> None:
    try:
        if own := prefix():
            # Nothing can be fetched from there.
            install(systems)
            os.execvp(own[0], [*own, sys.executable, "-m", "tools.chaos", *sys.argv[1:], "--has-own"])
    except (NetworkError, OutsideError) as error:
        sys.exit(str(error))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.chaos", description=__doc__)
    parser.add_argument("--faults", type=partial(_names, "fault", FAULTS), help=f"of {', '.join(FAULTS)} (all)")
    systems = "%(default)s; several take turns, and are kept apart from one that runs alone"
    parser.add_argument(
        "--systems",
        type=partial(_names, "system", SYSTEMS),
        default=PENSTOCK,
        help=f"of {', '.join(SYSTEMS)} ({systems})",
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each fault (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="what is drawn in a round follows from it (%(default)s)")
    parser.add_argument("--replay", metavar="NAME", help="one round again, as 1-kill-3, and nothing else")
    parser.add_argument(
        "--brief", metavar="NAME", help="one round with fewer clients on a stage without shims, and no report"
    )
    parser.add_argument("--folder", type=Path, help=f"where everything is kept ({FOLDER}, or beside it)")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--has-own", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    is_ours = asked.systems == [PENSTOCK]
    fit = [name for name, fault in FAULTS.items() if is_ours or fault.is_for_all]
    asked.faults = asked.faults or fit
    if unfit := [name for name in asked.faults if name not in fit]:
        parser.error(f"{', '.join(unfit)}: of these systems only Penstock can have that; all can have {', '.join(fit)}")
    if not is_ours and (asked.replay or asked.brief):
        parser.error("--replay and --brief are for Penstock alone")
    asked.folder = asked.folder or (FOLDER if is_ours else FOLDER.with_name("chaos-kafka"))
    return asked


def _names(kind: str, known: Iterable[str], text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in known]:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: there is no such {kind}; there are {', '.join(known)}")
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
        stages = _Stages(hosts, PENSTOCK, asked.folder, is_brief=True)
        [result] = stages.rounds({asked.brief: _fault_of(asked.brief)}, lambda _: None)
        console.print(_told(result), highlight=False, markup=False)
        return 0 if result.is_good else 1
    # What one has been through alone says little beside what others went through at another time.
    folders = {name: asked.folder if asked.systems == [PENSTOCK] else asked.folder / name for name in asked.systems}
    progress = {name: Progress(folder / "progress.json") for name, folder in folders.items()}
    if asked.replay is not None:
        todo = {asked.replay: _fault_of(asked.replay)}
    else:
        if left_out := [fault for fault in asked.faults if asked.has_own and FAULTS[fault].takes_power]:
            console.print(f"left out, as only root of this machine can attach disks: {', '.join(left_out)}")
        faults = [fault for fault in asked.faults if fault not in left_out]
        todo = plan(faults, asked.rounds, asked.seed)
    left = [
        (name, {one: fault for one, fault in some.items() if asked.replay or one not in progress[name].results})
        for name, some in turns(asked.systems, todo, len(asked.faults))
    ]
    columns = (TextColumn("rounds"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Bar(*columns, TextColumn("{task.description}"), console=console) as bar:
        task = bar.add_task("", total=sum(len(some) for _, some in left))
        for system, some in left:
            stages = _Stages(hosts, system, folders[system])
            while some:
                for result in stages.rounds(some, lambda name: bar.update(task, description=name)):
                    progress[system].add(result)
                    bar.update(task, advance=1)
                    told = _told(result) if asked.systems == [PENSTOCK] else f"{system}: {_told(result)}"
                    console.print(told, highlight=False, markup=False)
    return _report({name: list(one.results.values()) for name, one in progress.items()}, asked.folder, console)


def _fault_of(name: str) -> str:
    return name.partition("-")[2].rpartition("-")[0]


@dataclass(frozen=True, slots=True)
class _Stages:
    """Of one system, one after the other; what is kept of them and their rounds is in the folder."""

    hosts: Network
    system: str
    kept: Path
    is_brief: bool = False

    def rounds(self, todo: dict[str, str], begin: Callable[[str], None]) -> Iterator[Result]:
        """Rounds on one stage, up to one that something was wrong with: that stage's data stay as they are."""
        folder = self.kept / "stages" / next(iter(todo))
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.hosts.mend()
        shims = None if self.is_brief else self.kept
        with_disks = any(FAULTS[fault].takes_power for fault in todo.values())
        with SYSTEMS[self.system].stage(self.hosts, folder, shims=shims, with_disks=with_disks) as stage:
            for name, fault in list(todo.items()):
                begin(name)
                stage.warm()
                shutil.rmtree(self.kept / "rounds" / name, ignore_errors=True)
                result = run_round(stage, name, fault, self.kept / "rounds" / name, is_brief=self.is_brief)
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


def _report(results: dict[str, list[Result]], folder: Path, console: Console) -> int:
    is_ours = list(results) == [PENSTOCK]
    if is_ours:
        path, text, told = page.RESULTS, summary(results[PENSTOCK]), _as_objects(results[PENSTOCK])
    else:
        path, text = page.RESULTS.with_name("chaos-kafka"), comparison(results, version())
        told = {name: _as_objects(some) for name, some in results.items()}
    console.print(text, markup=False)
    path.with_suffix(".md").write_text(text)
    path.with_suffix(".json").write_text(json.dumps(told, indent=1) + "\n")
    if is_ours:
        page.main()
    if all(one.is_good for some in results.values() for one in some):
        return 0
    console.print(f"histories and logs of every round are in {folder}, in `rounds`", markup=False)
    return 1


def _as_objects(results: list[Result]) -> Any:
    return [asdict(one) for one in results]


if __name__ == "__main__":
    sys.exit(main())
