"""What part a file plays in a project: source, test, document, example, generated, or someone else's code.

A manifest in test data must not decide what the project is written with, and nobody should be asked to
write tests for generated code.
"""

import re
from typing import Literal

Role = Literal["source", "test", "docs", "example", "generated", "vendored"]

_VENDORED = {"vendor", "third_party", "thirdparty", "3rdparty", "_vendor", "_vendored"}
_VENDORED_AT_TOP = re.compile(r"deps/[^/]+/(?!.*\.pyi?$)")  # in Python, and deeper, it is a package's name
_TEST_DATA = {"testdata", "test-data", "fixtures", "__fixtures__", "__snapshots__", "snapshots", "testfixtures"}
_TEST_FOLDERS = {"test", "tests", "__tests__", "spec", "specs", "e2e", "cypress", "androidTest"}
_PERL_TEST_FOLDERS = {"t", "xt"}  # of Perl, and of what was written beside it; elsewhere such a name may be anything
_EXAMPLES = {"example", "examples", "sample", "samples", "demo", "demos", "playground"}
_TELLING_BELOW_SRC = _VENDORED | _TEST_DATA | _TEST_FOLDERS
_DOCS = {"doc", "docs", "documentation", "website"}
_TEST_FILE = re.compile(
    r"""(?x) (test_.*|.*_tests?|conftest|tests)\.pyi? | .*_test\.(go|dart|exs|cc|cpp|c|rs) | .*_spec\.(rb|lua)
      | .*\.(test|spec|cy|e2e)\.(js|jsx|ts|tsx|mjs|cjs|mts|cts|vue|svelte)
      | .*(Test|Tests|IT|Spec|TestCase)\.(java|kt|scala|groovy|cs|php|swift) | test_.*\.(rb|c|cpp|sh)
      | .*_test\.rb | .*\.t"""
)
_RUST_TEST = re.compile(  # #[test], those of async runtimes and of test crates, and what is compiled for tests alone
    r"""\#!?\[(?:[\w:]{0,60}test\w*\b | cfg\((?:[^"\]\n]|"[^"\n]*"){0,200}?(?<!not\()\btest\b)""", re.VERBOSE
)
_GENERATED_FILE = re.compile(
    r"""(?x) .*\.min\.(js|css) | .*\.(map|snap|lock|sum) | .*_pb2(_grpc)?\.pyi? | .*\.pb\.(go|cc|h)
      | .*\.(g|freezed)\.dart | .*\.designer\.cs | .*\.bundle\.js | .*_generated\.\w+ | .*\.generated\.\w+
      | configure | config\.(guess|sub|rpath) | ltmain\.sh | libtool\.m4 | lt(options|sugar|version|~obsolete)\.m4
      | aclocal\.m4 | depcomp | missing | compile | install-sh | mkinstalldirs | ylwrap | ar-lib | py-compile
      | test-driver | Makefile\.in"""  # the last three lines: what Autotools put beside a source
)
_LOCK_NAMES = """
uv.lock poetry.lock pdm.lock pylock.toml Pipfile.lock package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml
bun.lock bun.lockb deno.lock Cargo.lock go.sum Gemfile.lock composer.lock packages.lock.json gradle.lockfile
pubspec.lock mix.lock flake.lock
"""
_LOCK_FILES = frozenset(_LOCK_NAMES.split())


def is_lock_file(path: str) -> bool:
    """Return whether a file pins the versions of every dependency and is written by a tool.

    Example:
        >>> is_lock_file("web/package-lock.json")
        True
    """
    return path.rpartition("/")[2] in _LOCK_FILES


def role_of(path: str) -> Role:
    """Return the part that a file plays, judged by its path alone.

    Example:
        >>> [role_of(path) for path in ("src/app.py", "tests/test_app.py", "docs/guide.md", "web/app.min.js")]
        ['source', 'test', 'docs', 'generated']
    """
    *folders, name = path.split("/")
    if "src" in folders:  # below it a word like `example` is a package's name, and `src/test` says what it is
        at = folders.index("src")
        folders = folders[:at] + [each for each in folders[at + 1 :] if each in _TELLING_BELOW_SRC]
    above = set(folders)
    if above & _VENDORED or _VENDORED_AT_TOP.match(path):
        return "vendored"
    if is_lock_file(path) or _GENERATED_FILE.fullmatch(name):
        return "generated"
    if above & (_TEST_FOLDERS | _TEST_DATA) or set(folders[:1]) & _PERL_TEST_FOLDERS or _TEST_FILE.fullmatch(name):
        return "test"
    if above & _EXAMPLES:
        return "example"
    if above & _DOCS:
        return "docs"
    return "source"


def is_test_code(path: str) -> bool:
    """Return whether a file is a test itself, rather than data that tests read.

    Example:
        >>> is_test_code("tests/data/app/main.py"), is_test_code("tests/test_app.py")
        (True, True)
    """
    folders = set(path.split("/")[:-1])
    return role_of(path) == "test" and not folders & _TEST_DATA


def holds_rust_tests(text: str) -> bool:
    r"""Return whether tests stand in a Rust file itself, as they usually do.

    Example:
        >>> holds_rust_tests("#[tokio::test]\nasync fn works() {}"), holds_rust_tests("#[cfg(not(test))]\nfn go() {}")
        (True, False)
    """
    return _RUST_TEST.search(text) is not None


def belongs_to_project(path: str) -> bool:
    """Return whether a manifest or script at ``path`` speaks for the project, not for test data or an example.

    What stands in a hidden folder serves a tool of the project.

    Example:
        >>> belongs_to_project("web/package.json"), belongs_to_project("tests/data/web/package.json")
        (True, False)
    """
    is_hidden = any(folder.startswith(".") for folder in path.split("/")[:-1])
    return not is_hidden and role_of(path) in ("source", "generated")
