"""Which implementation does the work, and that none is imported before there is any."""

import subprocess
import sys

import pytest

from penstock.protocol.columns import prepare
from penstock.protocol.columns.kernels import Kernels, load
from tests.protocol.columns.samples import IMPLEMENTATIONS

HEAVY = ("numpy", "pyarrow", "numba")


def imported_by(program: str) -> set[str]:
    """Which heavy packages a program has imported at its end."""
    code = f"{program}\nimport sys\nprint(*(name for name in {HEAVY} if sys.modules.get(name)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


def test_importing_the_columns_imports_nothing_heavy() -> None:
    assert imported_by("import penstock.protocol.columns") == set()


def test_without_numba_the_work_is_numpys() -> None:
    hidden = "import sys; sys.modules['numba'] = None\n"
    program = f"{hidden}from penstock.protocol.columns import prepare; assert prepare() == 'numpy'"

    assert imported_by(program) == {"numpy", "pyarrow"}


def test_with_numba_the_work_is_numbas() -> None:
    assert prepare() == "numba"
    assert [prepare(impl) for impl in IMPLEMENTATIONS] == list(IMPLEMENTATIONS)


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
def test_an_implementation_has_every_kernel(impl: str) -> None:
    kernels = load(impl)  # type: ignore[arg-type]
    for name in vars(Kernels):
        assert name.startswith("_") or callable(getattr(kernels, name))
