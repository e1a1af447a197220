"""The fuzzer's targets without the fuzzer: on their own seeds, and on every input that once broke them."""

from random import Random

import pytest

from penstock.protocol.errors import DecodeError
from tests.protocol.messages import all_versions
from tools.fuzz import targets
from tools.fuzz.seeds import REGRESSIONS, seeds
from tools.fuzz.targets import TARGETS, choice, chosen


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_passes_on_its_own_seeds(target: str) -> None:
    inputs = list(seeds(target, Random(0), kinds=40))
    assert len(inputs) > 5
    for data in inputs:
        TARGETS[target](data)


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_passes_on_the_least_there_is(target: str) -> None:
    for data in (b"", b"\0", b"\xff", b"\0\0", b"\xff\xff\xff"):
        assert TARGETS[target](data) is None


def test_inputs_that_once_broke_a_target_no_longer_do() -> None:
    for path in REGRESSIONS.glob("*/*"):
        try:
            TARGETS[path.parent.name](path.read_bytes())
        except Exception as error:
            raise AssertionError(f"{path.relative_to(REGRESSIONS)} breaks its target again") from error


def test_every_class_and_version_can_be_chosen() -> None:
    assert all(chosen(*choice(cls, version)) == (cls, version) for cls, version in all_versions())


def test_any_two_bytes_choose_something() -> None:
    known = set(all_versions())
    assert all(chosen(key, variant) in known for key in range(256) for variant in range(256))


@pytest.mark.parametrize("problem", [IndexError, AssertionError, MemoryError, UnicodeDecodeError])
def test_any_error_but_a_decode_error_is_a_finding(problem: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    raised = problem("utf-8", b"", 0, 1, "bad") if problem is UnicodeDecodeError else problem()

    def decode_badly(*_: object) -> None:
        raise raised

    monkeypatch.setattr(targets, "decode", decode_badly)
    with pytest.raises(problem):
        TARGETS["codec"](b"\0\0rest")
    raised = DecodeError("bad bytes")
    TARGETS["codec"](b"\0\0rest")
