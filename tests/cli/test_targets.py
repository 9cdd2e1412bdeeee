"""What people name on the command line."""

import pytest

from baton.cli.session import Target

RUN_ID = "0199b2a0-5a76-40b3-b727-483050bda1c4"


class TestTarget:
    @pytest.mark.parametrize(
        ("text", "target"),
        [
            pytest.param("oauth2", Target("oauth2"), id="a workflow id"),
            pytest.param(f"oauth2/{RUN_ID}", Target("oauth2", RUN_ID), id="one of its runs"),
            pytest.param("shop/oauth2", Target("shop/oauth2"), id="an id with a slash"),
            pytest.param(f"shop/oauth2/{RUN_ID}", Target("shop/oauth2", RUN_ID), id="both"),
            pytest.param(RUN_ID, Target(RUN_ID), id="an id that looks like a run's"),
        ],
    )
    def test_a_run_id_is_distinguished_from_a_part_of_the_workflow_id(self, text: str, target: Target) -> None:
        """Only a UUID is a run id; the target prints as it was written."""
        assert Target.of(text) == target
        assert str(target) == text
