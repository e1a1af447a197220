"""Runs one target under atheris, in a process of its own, which libFuzzer ends: `python -m tools.fuzz.worker codec
…`."""

import sys
from collections.abc import Callable
from typing import Any

import atheris


def main() -> None:
    target, *arguments = sys.argv[1:]
    with atheris.instrument_imports(include=["penstock.protocol"]):
        from penstock.protocol import batch, codec, compression, control, framing, records, session, source
    del batch, codec, compression, control, framing, records, session
    instrument_generated(source.Source)
    from tools.fuzz.targets import TARGETS

    atheris.Setup([sys.argv[0], *arguments], TARGETS[target])
    atheris.Fuzz()


def instrument_generated(source: Any) -> None:
    """Decoders are compiled from text, which no import hook sees. Encoders only check them and stay as they are."""
    compile_plain: Callable[..., Any] = source.compile

    def compile_instrumented(self: Any, function: str, title: str) -> Any:
        made = compile_plain(self, function, title)
        return atheris.instrument_func(made) if function == "decode" else made

    source.compile = compile_instrumented


if __name__ == "__main__":
    main()
