"""The output folder: where it may be, what it must not touch, and results that come back as they were."""

from pathlib import Path

import pytest

from activities.project_init.files import survey
from activities.project_init.records import Documents, Evidence, Listing, ProjectError, TechStack
from activities.project_init.store import STATE_FOLDER, load, load_tree, prepare_output, save, write_bytes


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a project with one file."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source/a.py").touch()
    return tmp_path / "source"


class TestPrepareOutput:
    """Writing must not touch what is not ours."""

    def test_makes_and_marks_the_folder(self, source: Path, tmp_path: Path) -> None:
        """A new folder is made; a second run may use it again."""
        out = prepare_output(source, tmp_path / "deep/out")
        assert (out / STATE_FOLDER).is_dir()
        assert prepare_output(source, out) == out

    def test_accepts_a_place_below_a_baton_folder_of_the_project(self, source: Path) -> None:
        """Below `.baton` the project keeps Baton's output, which no survey looks at."""
        out = prepare_output(source, source / ".baton/init")
        assert out == source / ".baton/init"
        assert list(survey(source).by_path) == ["a.py"]
        assert survey(source).listing.left_out == ()

    @pytest.mark.parametrize("inside", ["", "docs", "a/../docs", "x.baton/y"])
    def test_refuses_the_project_itself(self, source: Path, inside: str) -> None:
        """Neither the project's folder nor one in it is written to."""
        with pytest.raises(ProjectError, match=r"project|folder"):
            prepare_output(source, source / inside)
        assert [path.name for path in source.iterdir()] == ["a.py"]

    def test_refuses_a_link_into_the_project(self, source: Path, tmp_path: Path) -> None:
        """A link does not hide where it leads."""
        (tmp_path / "link").symlink_to(source)
        with pytest.raises(ProjectError, match="is the project itself"):
            prepare_output(source, tmp_path / "link")

    def test_refuses_a_folder_with_files_of_others(self, source: Path, tmp_path: Path) -> None:
        """A README that somebody wrote is never overwritten."""
        (tmp_path / "other").mkdir()
        (tmp_path / "other/PROJECT.md").write_text("mine")
        with pytest.raises(ProjectError, match="choose an empty one"):
            prepare_output(source, tmp_path / "other")
        assert (tmp_path / "other/PROJECT.md").read_text() == "mine"

    def test_refuses_a_file(self, source: Path, tmp_path: Path) -> None:
        """A file cannot be a folder, and the error says so."""
        (tmp_path / "file").touch()
        with pytest.raises(ProjectError, match="cannot be used"):
            prepare_output(source, tmp_path / "file")


class TestWriteBytes:
    """Files appear whole or not at all."""

    def test_replaces_a_file_whole_and_leaves_nothing_behind(self, tmp_path: Path) -> None:
        """Only the new content is there, readable by all."""
        write_bytes(tmp_path, "a/b.md", b"old")
        written = write_bytes(tmp_path, "a/b.md", b"new")
        assert (written.path, written.size) == ("a/b.md", 3)
        assert [path.name for path in (tmp_path / "a").iterdir()] == ["b.md"]
        assert (tmp_path / "a/b.md").stat().st_mode & 0o777 == 0o644

    def test_replaces_a_link_instead_of_writing_through_it(self, tmp_path: Path) -> None:
        """A planted link in the output folder does not let us write elsewhere."""
        (tmp_path / "victim").write_text("safe")
        (tmp_path / "out").mkdir()
        (tmp_path / "out/PROJECT.md").symlink_to(tmp_path / "victim")
        write_bytes(tmp_path / "out", "PROJECT.md", b"x")
        assert (tmp_path / "victim").read_text() == "safe"


class TestSaveAndLoad:
    """Stages hand on their results through the folder."""

    def test_a_result_comes_back_equal(self, source: Path, tmp_path: Path) -> None:
        """What one worker saved another loads, tree included, without a path of the first machine (S1-ex-e)."""
        tree = survey(source)
        save(tmp_path, tree.listing)
        assert load(tmp_path, Listing) == tree.listing
        assert load_tree(tmp_path, source) == tree
        assert str(source) not in (tmp_path / STATE_FOLDER / "files.json").read_text()

    def test_a_missing_result_names_the_stage_to_run(self, tmp_path: Path) -> None:
        """The remedy is in the message."""
        with pytest.raises(ProjectError, match="run stage generate-docs first"):
            load(tmp_path, Documents)

    def test_a_damaged_result_is_refused_without_its_content(self, tmp_path: Path) -> None:
        """What is broken is said; what it held is not."""
        save(tmp_path, TechStack(name="x"))
        (tmp_path / STATE_FOLDER / "stack.json").write_text('{"secret": 1}')
        with pytest.raises(ProjectError, match="damaged") as caught:
            load(tmp_path, TechStack)
        assert "secret" not in str(caught.value)

    def test_only_results_of_stages_are_kept(self, tmp_path: Path) -> None:
        """Any other record is a programmer's mistake."""
        with pytest.raises(TypeError, match="no result of a stage"):
            save(tmp_path, Evidence(path="a"))
