"""The event loop of simulations, whose clock jumps and whose seed says what goes on next."""

import asyncio
from random import Random

import pytest

from tools.simulate.loop import Owner, SimulatedLoop


def test_the_clock_jumps_to_the_next_timer() -> None:
    loop = SimulatedLoop(Random(1), pytest.fail)
    loop.run(asyncio.sleep(3600.0))
    assert loop.time() == 3600.0
    loop.close()


def test_callbacks_of_one_owner_run_in_order_and_those_of_several_in_an_order_of_the_seed() -> None:
    def order(seed: int) -> str:
        loop = SimulatedLoop(Random(seed), pytest.fail)
        ran: list[str] = []
        for number, name in enumerate("ab"):
            context = Owner(name, number).context()
            for step in range(3):
                loop.call_soon(ran.append, f"{name}{step}", context=context)
        loop.run(asyncio.sleep(1.0))
        loop.close()
        for name in "ab":
            assert [step for step in ran if step[0] == name] == [f"{name}{step}" for step in range(3)]
        return " ".join(ran)

    assert len({order(seed) for seed in range(20)}) > 3


def test_a_held_owner_does_nothing_until_it_is_released() -> None:
    loop = SimulatedLoop(Random(1), pytest.fail)
    ran: list[str] = []
    owner = Owner("held", 1)
    loop.call_later(1.0, ran.append, "timer", context=owner.context())
    loop.hold(owner)
    loop.call_soon(ran.append, "soon", context=owner.context())
    loop.run(asyncio.sleep(5.0))
    assert ran == []
    loop.release(owner)
    loop.run(asyncio.sleep(5.0))
    assert ran == ["soon", "timer"]
    loop.close()
