"""Which folders are skipped, which names may hold secrets, and what `.gitignore` lines mean."""

import pytest

from activities.project_init.ignore import IgnoreRules, may_hold_secrets, skipped_folder


class TestSkippedFolder:
    """What is never, and what is sometimes, a project's own source."""

    @pytest.mark.parametrize(
        ("name", "children", "in_git", "reason"),
        [
            pytest.param("node_modules", (), True, "installed packages", id="packages are skipped even in git"),
            pytest.param(".baton", (), True, "Baton's own output", id="our own output is skipped"),
            pytest.param("env", ("pyvenv.cfg",), True, "installed packages", id="a virtualenv of any name is skipped"),
            pytest.param("app.egg-info", (), False, "build output", id="egg-info is skipped"),
            pytest.param("build", (), False, "build output", id="build is output where git does not say otherwise"),
            pytest.param("build", (), True, None, id="build that git lists is source"),
            pytest.param("build", ("__init__.py",), False, None, id="a Python package named build is source"),
            pytest.param("src", (), False, None, id="src is source"),
        ],
    )
    def test_judges_by_name_and_content(
        self, name: str, children: tuple[str, ...], in_git: bool, reason: str | None
    ) -> None:
        """The reason names why a folder is left out."""
        assert skipped_folder(name, children, in_git=in_git) == reason


class TestMayHoldSecrets:
    """Names whose content is never quoted."""

    @pytest.mark.parametrize("name", [".env", ".env.local", "server.pem", "id_ed25519", "credentials.json", ".npmrc"])
    def test_knows_the_names_of_secrets(self, name: str) -> None:
        """A key or password file is known by its name, at any depth."""
        assert may_hold_secrets(f"deploy/{name}")

    @pytest.mark.parametrize("name", [".env.example", "environment.py", "keys.py", "monkey", "credentials.py"])
    def test_leaves_look_alikes_alone(self, name: str) -> None:
        """A file that only sounds like a secret is read."""
        assert not may_hold_secrets(name)


class TestIgnoreRules:
    """The meaning of `.gitignore`, as gitignore(5) has it."""

    @pytest.mark.parametrize(
        ("lines", "path", "is_folder", "ignored"),
        [
            pytest.param("*.log", "a/b/c.log", False, True, id="a name matches at any depth"),
            pytest.param("/tmp", "a/tmp", False, False, id="a leading slash ties to the top"),
            pytest.param("/tmp", "tmp", False, True, id="a leading slash matches at the top"),
            pytest.param("a/b", "x/a/b", False, False, id="a slash inside ties to the top"),
            pytest.param("out/", "out", False, False, id="a trailing slash spares files"),
            pytest.param("out/", "x/out", True, True, id="a trailing slash matches folders"),
            pytest.param("*.log\n!keep.log", "keep.log", False, False, id="the last match decides"),
            pytest.param("a/**/z", "a/z", False, True, id="two stars match no folder"),
            pytest.param("a/**/z", "a/b/c/z", False, True, id="two stars match many folders"),
            pytest.param("a/**", "a", True, False, id="trailing stars spare the folder itself"),
            pytest.param("a/**", "a/b", False, True, id="trailing stars match what is inside"),
            pytest.param("# a", "# a", False, False, id="a comment is no pattern"),
            pytest.param("\\#a", "#a", False, True, id="an escaped hash is a name"),
            pytest.param("a?c", "abc", False, True, id="a question mark is one character"),
            pytest.param("[!a]b", "cb", False, True, id="a class may be negated"),
            pytest.param("*", "a", False, True, id="a lone star matches everything"),
            pytest.param("/", "a", False, False, id="a lone slash matches nothing"),
            pytest.param("a ", "a", False, True, id="trailing spaces do not count"),
        ],
    )
    def test_follows_gitignore(self, lines: str, path: str, is_folder: bool, ignored: bool) -> None:
        """Each kind of line does what git does with it."""
        assert IgnoreRules().extended("", lines).ignores(path, is_folder=is_folder) is ignored

    def test_a_deeper_file_overrides_a_higher_one(self) -> None:
        """Rules of a folder count below it, and before those of the folders above."""
        rules = IgnoreRules().extended("", "*.txt").extended("docs", "!note.txt")
        assert not rules.ignores("docs/note.txt", is_folder=False)
        assert rules.ignores("note.txt", is_folder=False)

    def test_a_hostile_pattern_costs_no_more_than_its_length(self) -> None:
        """Many stars are followed at once, not tried one after the other."""
        rules = IgnoreRules().extended("", "**/" * 60 + "*a" * 60 + "b\n")
        assert not rules.ignores("/".join(["a" * 200] * 20), is_folder=False)
