"""Numba's kernels: compiled before the first call, kept where that is possible, free of the interpreter's lock."""

from typing import Any

from numba import types

from penstock.protocol.columns import kernels_numba

COMPILED = [kernel for kernel in vars(kernels_numba).values() if hasattr(kernel, "signatures")]


def test_every_kernel_is_compiled_before_the_first_call_and_kept_for_the_next_process() -> None:
    assert len(COMPILED) >= 9
    assert all(len(kernel.signatures) == 1 for kernel in COMPILED)
    assert all(kernel.stats.cache_path for kernel in COMPILED)


def test_other_threads_run_while_a_kernel_does() -> None:
    assert all(kernel.targetoptions["nogil"] for kernel in COMPILED)


def test_what_cannot_be_kept_is_compiled_all_the_same() -> None:
    """A function without a file has no folder, like one in a file that lies where nothing can be written."""
    namespace: dict[str, Any] = {}
    exec("def double(number): return number * 2", namespace)
    compiled = kernels_numba._compiled(types.int64(types.int64))(namespace["double"])

    assert compiled(21) == 42
