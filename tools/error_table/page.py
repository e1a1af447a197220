"""Shows the error table in the guide to durability: `python -m tools.error_table.page` writes it there."""

from collections.abc import Iterable, Sequence
from textwrap import fill

from tools.clients.packages import ROOT
from tools.error_table.cells import MIN_ISR, MODES, SENT, UP, Row, Table
from tools.error_table.differences import DIFFERENCES
from tools.error_table.senders import read_mode

GUIDE = ROOT / "docs" / "guides" / "durability.md"
KAFKA = ROOT / "tests" / "fixtures" / "error_table" / "kafka.json"
BEGIN = "<!-- Written by `python -m tools.error_table.page`. -->"
END = "<!-- Until here. -->"
WIDTH = 120


def main() -> None:
    GUIDE.write_text(with_tables(GUIDE.read_text(), Table.read(KAFKA)))


def with_tables(guide: str, kafka: Table) -> str:
    """The guide with the tables that belong between its marks."""
    before, found, rest = guide.partition(BEGIN)
    _, ended, after = rest.partition(END)
    assert found, f"{BEGIN} is missing in {GUIDE}"
    assert ended, f"{END} is missing in {GUIDE}"
    return f"{before}{BEGIN}\n\n{_sends(kafka)}\n{_sources(kafka)}\n\n{_differences(kafka)}\n{END}{after}"


def _sources(kafka: Table) -> str:
    versions = ", ".join(f"{client} {version}" for client, version in kafka.versions.items())
    text = (
        f"{kafka.server} answers so in each of these cases, too, as seen on the wire and as reported by clients "
        f"({versions}). Fetch, ListOffsets, FindCoordinator, OffsetFetch, OffsetCommit, JoinGroup, SyncGroup and "
        "Produce requests that are wrong were sent in these states as well. The answers differ in these cases:"
    )
    return fill(text, WIDTH, break_on_hyphens=False)


def _sends(kafka: Table) -> str:
    head = ["`acks`", "`min.insync.replicas`", *(f"{up} broker{'s' if up > 1 else ''} up" for up in UP)]
    rows = []
    for acks in dict.fromkeys(read_mode(mode)[0] for mode in MODES):
        for min_isr in MIN_ISR:
            rows.append([f"`{acks}`", str(min_isr), *(_outcome(kafka, up, min_isr, acks) for up in UP)])
    return _table(head, rows)


def _outcome(kafka: Table, up: int, min_isr: int, acks: str) -> str:
    """What all clients are told, whether idempotent or not."""
    modes = [mode for mode in MODES if read_mode(mode)[0] == acks]
    told = {_words(told) for mode in modes for told in kafka.sends[Row(up, min_isr, mode)].values()}
    assert len(told) == 1, f"clients are told different things, and a page has to say so: {told}"
    return told.pop()


def _words(outcome: str) -> str:
    if outcome == SENT:
        return "nothing"
    return "acknowledged" if outcome.startswith("offset") else outcome


def _differences(kafka: Table) -> str:
    head = ["request", "brokers up", kafka.server, "Penstock", "why"]
    rows = []
    for request, states, ours, reason in DIFFERENCES:
        its = " or ".join(dict.fromkeys(kafka.answers[up][request] for up in states))
        rows.append([request, ", ".join(map(str, states)), its, ours or "not asked", reason])
    return _table(head, rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, ["---"] * len(head), *rows))


if __name__ == "__main__":
    main()
