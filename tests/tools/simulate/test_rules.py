"""The simulation of replication notices when a rule of replication is switched off."""

import pytest

from tests.tools.simulate.rules import RULES, Rule, problems, seeds
from tools.simulate.replication import simulate


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"rule {rule.number}: {rule.name}")
def test_it_is_noticed_that_a_rule_is_off(rule: Rule) -> None:
    seed = seeds()[rule.name]
    assert simulate(seed).problems == [], "with the rule"
    assert problems(rule, seed), (
        f"schedule {seed} goes well without the rule; .venv/bin/python -m tests.tools.simulate.rules looks for another"
    )


def test_every_rule_can_be_switched_off() -> None:
    assert {rule.number for rule in RULES} == set(range(1, 16))
    assert len({rule.name for rule in RULES}) == len(RULES)
