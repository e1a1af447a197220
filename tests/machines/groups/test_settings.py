"""Defaults are those of the configs that they come from."""

import pytest

from penstock.broker.config.broker_table import BROKER_CONFIGS
from penstock.machines.groups.settings import GroupSettings


@pytest.mark.parametrize(
    ("setting", "config", "unit"),
    [
        ("min_session_timeout_ms", "group.min.session.timeout.ms", 1),
        ("max_session_timeout_ms", "group.max.session.timeout.ms", 1),
        ("initial_rebalance_delay_ms", "group.initial.rebalance.delay.ms", 1),
        ("max_size", "group.max.size", 1),
        ("offsets_retention_ms", "offsets.retention.minutes", 60_000),
        ("offsets_retention_check_interval_ms", "offsets.retention.check.interval.ms", 1),
        ("offset_metadata_max_bytes", "offset.metadata.max.bytes", 1),
        ("max_record_bytes", "message.max.bytes", 1),
    ],
)
def test_the_default_is_that_of_the_config(setting: str, config: str, unit: int) -> None:
    default = BROKER_CONFIGS[config].default
    assert isinstance(default, int)
    assert getattr(GroupSettings(), setting) == default * unit
