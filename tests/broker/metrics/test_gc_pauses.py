"""Collections are seen from start to close."""

import gc

from penstock.broker.metrics.gc_pauses import GcPauses


def test_each_collection_is_counted_by_its_generation() -> None:
    pauses = GcPauses()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        pauses.start()
        garbage: list[object] = []
        garbage.append(garbage)
        del garbage
        gc.collect(0)
        gc.collect(1)
        gc.collect(2)
        gc.collect()
        pauses.close()
        gc.collect()
    finally:
        if was_enabled:
            gc.enable()
    assert pauses.collections == [1, 1, 2]
    assert pauses.seconds.count == 4
    assert pauses.recent.value > 0
    assert pauses.collected >= 1


def test_closing_leaves_no_callback_behind() -> None:
    before = list(gc.callbacks)
    first, second = GcPauses(), GcPauses()
    first.start()
    second.start()
    assert len(gc.callbacks) == len(before) + 2
    first.close()
    second.close()
    assert gc.callbacks == before
