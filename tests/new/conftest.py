"""What the tests of projects share: an environment with the wheel."""

import pytest

from tests.wheels import Installed, install


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Return an environment with the wheel, in which no model is configured."""
    made = install(tmp_path_factory.mktemp("environment"))
    kept = {name: value for name, value in made.variables.items() if not name.startswith(("AGENT_", "OPENAI_", "CI"))}
    return Installed(made.programs, made.packages, kept)
