"""Attacks on an approved stage: what runs is what was shown, as often as it was approved."""

from collections.abc import AsyncIterator

import pytest
from temporalio.worker import Worker

from baton.devserver import DevServer
from baton.testing import (
    APPROVAL_ATTACKS,
    ATTACKED_STAGES,
    attack_an_approval,
    attacked_payment,
    connected,
    pipeline_worker,
)

SHOWN = "Paid 12 dollars for invoice 17"
PAID = {
    "change_it_as_the_stage_begins": [SHOWN],
    "pay_twice": [SHOWN],
    "pay_twice_at_once": [SHOWN],
    "hide_it_behind_a_second_approval": ["Paid 12 dollars for invoice 18", SHOWN],
}


@pytest.fixture(scope="module")
async def attacked(server: DevServer) -> AsyncIterator[Worker]:
    async with pipeline_worker(await connected(server.address), [attacked_payment], ATTACKED_STAGES) as worker:
        yield worker


@pytest.mark.parametrize("attack", APPROVAL_ATTACKS)
async def test_nothing_is_paid_that_was_not_shown(attacked: Worker, attack: str) -> None:
    """Whatever the pipeline's code does between the question and the stage."""
    assert await attack_an_approval(attacked, attack) == PAID.get(attack, [])
