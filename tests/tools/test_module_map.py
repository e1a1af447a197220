"""The map of modules is fresh, and every link and path in the docs leads somewhere."""

import re
from pathlib import Path

import pytest

from tools import module_map

ROOT = Path(__file__).parent.parent.parent
ARCHITECTURE = ROOT / "docs" / "architecture.md"
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]


def test_the_committed_map_is_what_the_modules_say() -> None:
    assert module_map.PAGE.read_text() == module_map.render(), "run python -m tools.module_map"


@pytest.mark.parametrize("folder", ["src/penstock", "tools", "benchmarks"])
def test_every_module_is_on_the_map_with_a_sentence(folder: str) -> None:
    page = module_map.render()
    modules = [
        path for path in (ROOT / folder).rglob("*.py") if path.name != "__init__.py" and "schemas" not in path.parts
    ]
    assert modules, f"{folder} has modules"
    for path in modules:
        section = page.partition(f"## `{path.parent.relative_to(ROOT).as_posix()}/`\n")[2].partition("\n## ")[0]
        assert re.search(rf"^\| `{path.name}` \| \S.{{10,}} \|$", section, re.MULTILINE), path


def test_a_stale_map_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_map, "PAGE", tmp_path / "modules.md")
    assert module_map.main([]) == 0
    assert module_map.main(["--check"]) == 0
    module_map.PAGE.write_text("old")
    assert module_map.main(["--check"]) == 1


@pytest.mark.parametrize(
    ("docstring", "sentence"),
    [
        ("One. Two.", "One"),
        (
            "JoinGroup 0 to 9, e.g. of Java: what\n    members send.\n\n    More.",
            "JoinGroup 0 to 9, e.g. of Java: what members send",
        ),
        ("TLS and SASL", "TLS and SASL"),
    ],
)
def test_the_first_sentence_is_taken_as_it_stands(tmp_path: Path, docstring: str, sentence: str) -> None:
    module = tmp_path / "module.py"
    module.write_text(f'"""{docstring}"""\n')
    assert module_map.first_sentence(module) == sentence


def test_every_path_in_the_text_exists() -> None:
    mentioned = set(re.findall(r"`((?:src|tests|tools|benchmarks|docs)/[\w./-]*)`", ARCHITECTURE.read_text()))
    assert {path for path in mentioned if not (ROOT / path).exists()} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    local = {link.partition("#")[0] for link in links if not link.startswith(("http://", "https://", "#"))}
    assert {link for link in local if not (page.parent / link).exists()} == set()
