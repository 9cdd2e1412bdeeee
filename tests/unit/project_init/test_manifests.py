"""Manifests of every ecosystem, read into one shape."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from activities.project_init.files import survey
from activities.project_init.manifests import jvm, native, node, others, python, rust_and_go
from activities.project_init.manifests.registry import MOST_MANIFESTS, read_manifests, reader_for
from activities.project_init.parsing import UnreadableError
from activities.project_init.records import Manifest


def wanted(manifest: Manifest) -> list[tuple[str, str, str, int | None]]:
    """Return what a manifest asks for: name, version, group and line."""
    return [(each.name, each.requirement, each.group, each.evidence.line) for each in manifest.dependencies]


class TestParseRequirement:
    """One line of PEP 508."""

    @pytest.mark.parametrize(
        ("written", "parsed"),
        [
            ("requests", ("requests", "")),
            ("a.b-c_d >= 1.0 , < 2", ("a.b-c_d", ">= 1.0 , < 2")),
            ("x[y,z]==1 ; python_version < '3'", ("x", "==1")),
            ("pkg @ https://x.org/pkg.zip", ("pkg", "@")),
            ("pkg (>=1)", ("pkg", ">=1")),
            ("-r other.txt", None),
            ("--hash=sha256:00", None),
            ("https://x.org/pkg.zip", None),
            ("./local", None),
            ("# note", None),
            ("", None),
        ],
    )
    def test_gives_name_and_version(self, written: str, parsed: tuple[str, str] | None) -> None:
        """Extras, markers and addresses are dropped; what names no package is None."""
        assert python.parse_requirement(written) == parsed


class TestPython:
    """Python's five manifests."""

    def test_reads_a_standard_pyproject(self) -> None:
        """PEP 621, PEP 735, build system, scripts and tools, each with its line."""
        text = (
            '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
            '[project]\nname = "app"\nversion = "1"\nlicense = "MIT"\nrequires-python = ">=3.11"\n'
            'dependencies = [\n  "a[b]>=1",\n  "b",\n]\n'
            '[project.optional-dependencies]\ntest = ["c"]\ntls = ["d"]\n'
            '[project.scripts]\napp = "app.cli:main"\n[project.entry-points.x]\napp = "app.plug"\n'
            '[dependency-groups]\ndev = ["e==2", {include-group = "x"}]\n[tool.ruff.lint]\nselect = []\n'
        )
        found = python.read_pyproject("pyproject.toml", text)
        assert wanted(found) == [
            ("a", ">=1", "runtime", 10),
            ("b", "", "runtime", 11),
            ("c", "", "development", 14),
            ("d", "", "optional", 15),
            ("e", "==2", "development", 21),
            ("hatchling", "", "build", 2),
        ]
        assert (found.name, found.license, found.license_line, found.runtime) == ("app", "MIT", 7, "Python >=3.11")
        assert [(each.name, each.kind, each.evidence.line) for each in found.entry_points] == [
            ("app", "console script", 17),
            ("app", "plugin for x", 19),
        ]
        assert [(each.name, each.evidence.line) for each in found.tools] == [("ruff", 22)]

    @pytest.mark.parametrize(
        ("name", "group"),
        [
            *((name, "development") for name in ("dev", "docs", "test_all", "type-check", "CI", "lint3")),
            *((name, "optional") for name in ("device", "docker", "latest", "prototype", "social", "information")),
        ],
    )
    def test_an_extra_is_for_development_by_a_whole_word_of_its_name(self, name: str, group: str) -> None:
        """Docker does not write documentation, and what is social does not run in CI."""
        found = python.read_pyproject("pyproject.toml", f'[project.optional-dependencies]\n{name} = ["a"]\n')
        assert wanted(found) == [("a", "", group, 2)]

    def test_reads_poetry(self) -> None:
        """Poetry's own tables count where the standard ones are missing."""
        text = (
            '[tool.poetry]\nname = "app"\n[tool.poetry.dependencies]\npython = "^3.11"\na = "^1"\n'
            'b = {version = "*", optional = true}\n[tool.poetry.group.dev.dependencies]\nc = "*"\n'
        )
        found = python.read_pyproject("pyproject.toml", text)
        assert wanted(found) == [("a", "^1", "runtime", 5), ("b", "", "runtime", 6), ("c", "", "development", 8)]
        assert (found.name, found.runtime) == ("app", "Python ^3.11")

    def test_reads_the_licence_from_classifiers(self) -> None:
        """An old way of naming a licence becomes its SPDX identifier."""
        text = '[project]\nname = "a"\nclassifiers = ["License :: OSI Approved :: Apache Software License"]\n'
        assert python.read_pyproject("pyproject.toml", text).license == "Apache-2.0"

    def test_reads_setup_cfg(self) -> None:
        """Old projects keep everything there."""
        text = (
            "[metadata]\nname = app\nlicense = MIT\n[options]\npython_requires = >=3.8\ninstall_requires =\n  a>=1\n"
            "[options.extras_require]\ntest = b\n[options.entry_points]\nconsole_scripts =\n  app = app:main\n[mypy]\n"
        )
        found = python.read_setup_cfg("setup.cfg", text)
        assert wanted(found) == [("a", ">=1", "runtime", 7), ("b", "", "development", 9)]
        assert [(each.name, each.target) for each in found.entry_points] == [("app", "app:main")]
        assert [each.name for each in found.tools] == ["mypy"]

    def test_reads_the_literals_of_setup_py_and_runs_nothing(self, tmp_path: Path) -> None:
        """What is written out is known, by a constant of the file too; what is computed is not; nothing is executed."""
        text = (
            f"import setuptools\nopen({str(tmp_path / 'ran')!r}, 'w')\nNAME = 'app'\n"
            "setuptools.setup(name=NAME, version=read(),\n"
            "  install_requires=('a>=1', 'b'), extras_require={'dev': ['c']}, python_requires='>=3.8',\n"
            "  entry_points={'console_scripts': ['app = app:main']})\n"
        )
        found = python.read_setup_py("setup.py", text)
        assert not (tmp_path / "ran").exists()
        assert (found.name, found.version, found.runtime) == ("app", "", "Python >=3.8")
        assert [each[:3] for each in wanted(found)] == [
            ("a", ">=1", "runtime"),
            ("b", "", "runtime"),
            ("c", "", "development"),
        ]

    def test_reads_requirements_by_their_names(self) -> None:
        """A file for tests asks for development; one that a tool compiled pins what others ask for."""
        assert wanted(python.read_requirements("requirements.txt", "a==1\n-r b.txt\n# c\nd\n")) == [
            ("a", "==1", "runtime", 1),
            ("d", "", "runtime", 4),
        ]
        assert wanted(python.read_requirements("requirements/test.txt", "a\n"))[0][2] == "development"
        assert wanted(python.read_requirements("test-requirements.txt", "a\n"))[0][2] == "development"
        compiled = python.read_requirements("requirements.txt", "a==1 \\\n    --hash=sha256:00\nb==2\n")
        assert [each[:3] for each in wanted(compiled)] == [("a", "==1", "indirect"), ("b", "==2", "indirect")]
        assert compiled.builder == python.COMPILED

    def test_reads_a_pipfile(self) -> None:
        """Both groups, and the version of Python."""
        text = '[packages]\na = "*"\n[dev-packages]\nb = {version = ">=2"}\n[requires]\npython_version = "3.11"\n'
        found = python.read_pipfile("Pipfile", text)
        assert wanted(found) == [("a", "", "runtime", 2), ("b", ">=2", "development", 4)]
        assert found.runtime == "Python 3.11"


class TestNode:
    """package.json."""

    def test_reads_packages_scripts_and_programs(self) -> None:
        """Every group, script, program, and the engine."""
        text = (
            '{\n"name": "app", "license": {"type": "MIT"}, "engines": {"node": ">=20"},\n'
            '"bin": "cli.js", "main": "i.js",\n"packageManager": "pnpm@9.1.0",\n"scripts": {\n"test": "jest"},\n'
            '"dependencies": {\n"@a/b": "^1", "c": "*"},\n'
            '"devDependencies": {"d": "1"}, "peerDependencies": {"e": "2"}}'
        )
        found = node.read_package_json("package.json", text)
        assert wanted(found) == [
            ("@a/b", "^1", "runtime", 8),
            ("c", "", "runtime", 8),
            ("d", "1", "development", 9),
            ("e", "2", "peer", 9),
        ]
        assert [(each.name, each.body, each.evidence.line) for each in found.scripts] == [("test", "jest", 6)]
        assert [(each.kind, each.target) for each in found.entry_points] == [
            ("console script", "cli.js"),
            ("library entry", "i.js"),
        ]
        assert (found.license, found.runtime, found.builder) == ("MIT", "Node.js >=20", "pnpm")

    @pytest.mark.parametrize("text", ["[]", "3", '"x"', "null"])
    def test_refuses_what_is_no_object(self, text: str) -> None:
        """JSON that is no package is unreadable."""
        with pytest.raises(UnreadableError):
            node.read_package_json("package.json", text)

    def test_members_of_wrong_types_are_passed_over(self) -> None:
        """A broken member does not hide the others."""
        text = '{"name": 3, "scripts": ["x"], "dependencies": {"a": {"b": 1}}, "bin": 7, "engines": "x"}'
        assert wanted(node.read_package_json("package.json", text)) == [("a", "", "runtime", 1)]


class TestRustAndGo:
    """Cargo.toml and go.mod."""

    def test_reads_a_cargo_workspace_member(self) -> None:
        """Tables of dependencies in all their spellings."""
        text = (
            '[package]\nname = "a"\nlicense = "MIT"\nedition = "2021"\n[dependencies]\nb = "1"\n'
            'c = { path = "../c" }\nd = { workspace = true }\n[dev-dependencies]\ne = "*"\n'
            '[target."cfg(unix)".dependencies]\nf = "2"\n[[bin]]\nname = "tool"\npath = "x/tool.rs"\n'
        )
        found = rust_and_go.read_cargo_toml("Cargo.toml", text)
        assert [each[:3] for each in wanted(found)] == [
            ("b", "1", "runtime"),
            ("c", "@", "runtime"),
            ("d", "workspace", "runtime"),
            ("e", "", "development"),
            ("f", "2", "runtime"),
        ]
        assert [(each.name, each.target) for each in found.entry_points] == [("tool", "x/tool.rs")]
        assert found.runtime == "Rust edition 2021"

    def test_reads_go_mod(self) -> None:
        """Blocks and single lines; indirect ones are marked, replaced ones are not doubled."""
        text = (
            "module x.org/a\n\ngo 1.22\n\nrequire (\n\tx.org/b v1.0.0\n\tx.org/c v2.0.0 // indirect\n)\n"
            "require x.org/d v0.1.0\nreplace (\n\tx.org/b v1.0.0 => ../b\n)\n"
        )
        found = rust_and_go.read_go_mod("go.mod", text)
        assert wanted(found) == [
            ("x.org/b", "v1.0.0", "runtime", 6),
            ("x.org/c", "v2.0.0", "indirect", 7),
            ("x.org/d", "v0.1.0", "runtime", 9),
        ]
        assert (found.name, found.runtime, found.runtime_line) == ("x.org/a", "Go >=1.22", 3)

    def test_refuses_a_go_mod_without_a_module(self) -> None:
        """It is not in use as it is."""
        with pytest.raises(UnreadableError, match="no module"):
            rust_and_go.read_go_mod("go.mod", "go 1.22\n")


class TestJvm:
    """pom.xml and build.gradle."""

    def test_reads_a_pom_with_properties(self) -> None:
        """Properties of the same file are filled in; scopes become groups."""
        text = (
            "<project>\n<groupId>g</groupId><artifactId>a</artifactId><version>1</version>\n"
            "<licenses><license><name>MIT</name></license></licenses>\n"
            "<properties><v>2.0</v><java.version>21</java.version></properties>\n<dependencies>\n"
            "<dependency><groupId>${project.groupId}</groupId><artifactId>b</artifactId><version>${v}</version>"
            "</dependency>\n<dependency><groupId>h</groupId><artifactId>c</artifactId><scope>test</scope></dependency>\n"
            "</dependencies></project>"
        )
        found = jvm.read_pom("pom.xml", text)
        assert wanted(found) == [("g:b", "2.0", "runtime", 6), ("h:c", "", "development", 7)]
        assert (found.name, found.license, found.runtime, found.runtime_line) == ("a", "MIT", "Java 21", 4)

    def test_refuses_other_xml(self) -> None:
        """An XML file of that name may be something else."""
        with pytest.raises(UnreadableError, match="not a Maven project"):
            jvm.read_pom("pom.xml", "<x/>")

    @pytest.mark.parametrize(
        "text",
        [
            pytest.param(
                "plugins {\n  id 'application'\n}\ndependencies {\n  implementation 'g:a:1.0'\n"
                "  testImplementation 'g:b:2'\n}\n",
                id="Groovy",
            ),
            pytest.param(
                'plugins {\n  id("application")\n}\ndependencies {\n  implementation("g:a:1.0")\n'
                '  testImplementation("g:b:2")\n}\n',
                id="Kotlin",
            ),
        ],
    )
    def test_reads_gradle_in_both_languages(self, text: str) -> None:
        """Plain lines are read; the rest of the program is not run."""
        found = jvm.read_gradle("build.gradle", text)
        assert wanted(found) == [("g:a", "1.0", "runtime", 5), ("g:b", "2", "development", 6)]
        assert [each.name for each in found.tools] == ["application"]

    @pytest.mark.parametrize("kind", ["androidTest", "integrationTest", "functionalTest"])
    def test_knows_what_gradle_needs_for_tests_alone(self, kind: str) -> None:
        """A set of tests has whatever name the project gives it."""
        found = jvm.read_gradle("build.gradle", f"dependencies {{\n  {kind}Implementation 'g:a:1'\n}}\n")
        assert wanted(found) == [("g:a", "1", "development", 2)]

    def test_reads_the_version_catalog_of_gradle(self) -> None:
        """In each of the ways in which an entry may be written; what is for tests is told by its name."""
        text = (
            '[versions]\nspring = "3.3.0"\n[libraries]\nweb = { module = "org.spring:web", version.ref = "spring" }\n'
            'guava = "com.google:guava:33"\nbom = { group = "g", name = "bom", version = { strictly = "1" } }\n'
            'junit = { module = "org.junit:junit", version = "5" }\nbroken = 3\n'
            '[plugins]\nboot = { id = "org.spring.boot", version.ref = "spring" }\n'
        )
        found = jvm.read_gradle_catalog("gradle/libs.versions.toml", text)
        assert wanted(found) == [
            ("org.spring:web", "3.3.0", "runtime", 4),
            ("com.google:guava", "33", "runtime", 5),
            ("g:bom", "", "runtime", 6),
            ("org.junit:junit", "5", "development", 7),
        ]
        assert [(each.name, each.version) for each in found.tools] == [("org.spring.boot", "3.3.0")]

    def test_knows_the_name_from_the_settings(self) -> None:
        """A build file does not name its project; the settings do."""
        assert jvm.read_gradle_settings("settings.gradle", "rootProject.name = 'app'\n").name == "app"


class TestOthers:
    """Ruby, PHP, .NET, Dart, Elixir, CMake."""

    def test_reads_a_gemfile(self) -> None:
        """Groups hold until their end."""
        text = "ruby '3.3'\ngem 'rails', '~> 7'\ngroup :test do\n  gem 'rspec'\nend\ngem 'x', group: :test\n"
        found = others.read_gemfile("Gemfile", text)
        assert wanted(found) == [
            ("rails", "~> 7", "runtime", 2),
            ("rspec", "", "development", 4),
            ("x", "", "development", 6),
        ]
        assert found.runtime == "Ruby 3.3"

    def test_reads_a_gemspec(self) -> None:
        """Plain assignments and dependencies."""
        text = (
            "Gem::Specification.new do |s|\n  s.name = 'a'\n  s.license = 'MIT'\n  s.add_dependency 'b', '>= 1'\nend\n"
        )
        found = others.read_gemspec("a.gemspec", text)
        assert (found.name, found.license, wanted(found)) == ("a", "MIT", [("b", ">= 1", "runtime", 4)])

    def test_reads_composer(self) -> None:
        """Extensions of PHP itself are no packages; several licences are a choice."""
        text = '{"name": "v/a", "license": ["MIT", "GPL-2.0"], "require": {"php": ">=8", "ext-x": "*", "v/b": "^1"}}'
        found = others.read_composer("composer.json", text)
        assert (found.license, found.runtime) == ("MIT OR GPL-2.0", "PHP >=8")
        assert wanted(found) == [("v/b", "^1", "runtime", 1)]

    def test_reads_a_pubspec(self) -> None:
        """Dart's YAML; settings below a package are not packages."""
        text = (
            "name: app\nenvironment:\n  sdk: ^3.0.0\ndependencies:\n  a: any\n  b:\n    path: ../b\n"
            "dev_dependencies:\n  c: ^1\n"
        )
        found = others.read_pubspec("pubspec.yaml", text)
        assert wanted(found) == [("a", "", "runtime", 5), ("b", "", "runtime", 6), ("c", "^1", "development", 9)]
        assert found.runtime == "Dart ^3.0.0"

    def test_reads_mix(self) -> None:
        """Elixir's plain parts."""
        text = (
            'app: :shop,\nelixir: "~> 1.15",\ndefp deps do\n[\n{:phoenix, "~> 1.7"},\n'
            '{:credo, "~> 1", only: [:dev]}\n]\n'
        )
        found = others.read_mix("mix.exs", text)
        assert (found.name, found.runtime) == ("shop", "Elixir ~> 1.15")
        assert [each[:3] for each in wanted(found)] == [
            ("phoenix", "~> 1.7", "runtime"),
            ("credo", "~> 1", "development"),
        ]

    def test_reads_mix_on_one_line(self) -> None:
        """A list of few dependencies has room on a line; other tuples and what is commented out are none."""
        text = (
            'defp deps, do: [{:phoenix, "~> 1.7"}, {:credo, "~> 1", only: [:dev], a: false}, {:a, path: "../a"}]\n'
            '# [{:old, "~> 1"}]\npreferred_cli_env: [{:coveralls, :test}]\n'
        )
        assert wanted(others.read_mix("mix.exs", text)) == [
            ("phoenix", "~> 1.7", "runtime", 1),
            ("credo", "~> 1", "development", 1),
            ("a", "", "runtime", 1),
        ]

    def test_reads_cmake(self) -> None:
        """Name, version, packages looked for."""
        text = (
            "cmake_minimum_required(VERSION 3.20)\nproject(app VERSION 1.2 LANGUAGES CXX)\n"
            "find_package(Boost 1.80 REQUIRED)\n"
        )
        found = native.read_cmake("CMakeLists.txt", text)
        assert (found.name, found.version, wanted(found)) == ("app", "1.2", [("Boost", "1.80", "runtime", 3)])


class TestReadManifests:
    """Which files are read."""

    def test_knows_manifests_by_name(self) -> None:
        """Names and patterns, at any depth."""
        paths = [
            "pyproject.toml",
            "a/package.json",
            "dev-requirements.txt",
            "requirements/base.in",
            "x/App.csproj",
            "a.gemspec",
        ]
        assert all(reader_for(path) for path in paths)
        assert not any(reader_for(path) for path in ["a.toml", "requirements.md", "package.json.bak"])

    def test_passes_over_test_data_and_names_what_is_broken(
        self, project: Callable[[Mapping[str, str | bytes]], Path]
    ) -> None:
        """A broken manifest is a finding, not a failure."""
        tree = survey(
            project({"package.json": "{", "tests/data/package.json": "{}", "a/Cargo.toml": "", "go.mod": b"\0\1"})
        )
        manifests, left = read_manifests(tree, lambda _: None)
        assert [(each.path, bool(each.problem)) for each in manifests] == [
            ("go.mod", True),
            ("package.json", True),
            ("a/Cargo.toml", False),
        ]
        assert left == 0

    def test_tells_how_many_it_did_not_read(self, project: Callable[[Mapping[str, str | bytes]], Path]) -> None:
        """A repository of very many packages is read in part, and says so."""
        files: dict[str, str | bytes] = {f"p{number}/package.json": "{}" for number in range(MOST_MANIFESTS + 3)}
        manifests, left = read_manifests(survey(project(files)), lambda _: None)
        assert (len(manifests), left) == (MOST_MANIFESTS, 3)

    def test_what_benchmarks_ask_for_is_for_development(
        self, project: Callable[[Mapping[str, str | bytes]], Path]
    ) -> None:
        """The program runs without the packages that it is compared with."""
        folders = ("", "benchmarks/peers/", "service/")
        files: dict[str, str | bytes] = {f"{folder}requirements.txt": "dbos==3.4\n" for folder in folders}
        manifests, _ = read_manifests(survey(project(files)), lambda _: None)
        groups = {each.path: each.dependencies[0].group for each in manifests}
        assert list(groups.values()) == ["runtime", "runtime", "development"]
        assert groups["benchmarks/peers/requirements.txt"] == "development"
