"""Manifests of programs that are configured and compiled on the spot: Autotools, Meson, CMake, and Perl's."""

import re
from collections.abc import Iterator

from activities.project_init.parsing import line_of, string
from activities.project_init.records import Dependency, DependencyGroup, Evidence, Manifest

_FIND_PACKAGE = re.compile(r"find_package\s*\(\s*(\w+)(?:\s+(\d[\d.]*))?", re.IGNORECASE)
_PKG_CONFIG = re.compile(r"^\s*PKG_CHECK_MODULES\(\s*\[?\w+\]?\s*,\s*\[?\s*([\w.+-]+)(?:\s*>=\s*([\w.]+))?")
_MESON_DEPENDENCY = re.compile(r"\bdependency\s*\(\s*'([\w.+-]+)'(?:[^)]*?\bversion\s*:\s*'([^']+)')?")
_PERL_HASH = re.compile(r"\b(PREREQ_PM|(?:TEST|BUILD|CONFIGURE)_REQUIRES|(?<!')requires)['\"]?\s*=>\s*\{([^{}]*)\}")
_PERL_MODULE = re.compile(r"""['"]?\b([A-Z]\w*(?:::\w+)*)['"]?\s*=>\s*['"]?([\d._v]+)""")
_CPANFILE_LINE = re.compile(
    r"""^[ \t]*(test_|build_|configure_)?requires\s+['"]([A-Z][\w:]*)['"](?:\s*(?:,|=>)\s*['"]?([\d._v]+))?""", re.M
)


def read_cmake(path: str, text: str) -> Manifest:
    """Read project name, version and packages looked for from a `CMakeLists.txt`."""
    project = re.search(r"^[ \t]*project\s*\(\s*([\w.+-]+)([^)]*)\)", text, re.MULTILINE | re.IGNORECASE)
    version = re.search(r"VERSION\s+([\d.]+)", project[2]) if project else None
    least = re.search(r"cmake_minimum_required\s*\(\s*VERSION\s+(\d+(?:\.\d+)*)", text, re.IGNORECASE)
    return Manifest(
        path=path,
        ecosystem="cmake",
        name=project[1] if project else "",
        version=version[1] if version else "",
        runtime=f"CMake >={least[1]}" if least else "",
        runtime_line=line_of(least),
        builder="cmake",
        dependencies=tuple(_asked_for(path, text, _FIND_PACKAGE)),
    )


def read_autotools(path: str, text: str) -> Manifest:
    """Read package name, version and libraries looked for from a `configure.ac`."""
    named = re.search(r"^AC_INIT\(\s*\[*([^\],()\n]+?)\]*\s*(?:,\s*\[?v?(\d[\w.]*)|[,)])", text, re.MULTILINE)
    name = named[1].removeprefix("GNU ") if named and re.fullmatch(r"[\w+ -]+", named[1]) else ""
    least = re.search(r"^AC_PREREQ\(\s*\[?([\d.]+)", text, re.MULTILINE)
    return Manifest(
        path=path,
        ecosystem="autotools",
        name=name,
        version=(named[2] or "") if named and name else "",
        runtime=f"Autoconf >={least[1]}" if least else "",
        runtime_line=line_of(least),
        builder="autoconf",
        dependencies=tuple(_asked_for(path, text, _PKG_CONFIG)),
    )


def read_meson(path: str, text: str) -> Manifest:
    """Read project name, version, licence and libraries looked for from a `meson.build`."""
    project = re.search(
        r"^project\s*\(\s*'([^']+)'(.{0,2000}?)\n\s*\)|^project\s*\(\s*'([^']+)'(.*)\)", text, re.M | re.S
    )
    settings = (project[2] or project[4] or "") if project else ""
    found = {
        word: re.search(rf"\b{word}\s*:\s*\[?\s*'([^']+)'", settings)
        for word in ("version", "license", "meson_version")
    }
    values = {word: match[1] if match else "" for word, match in found.items()}
    return Manifest(
        path=path,
        ecosystem="meson",
        name=(project[1] or project[3]) if project else "",
        version=values["version"],
        runtime=f"Meson {values['meson_version']}" if values["meson_version"] else "",
        builder="meson",
        dependencies=tuple(_asked_for(path, text, _MESON_DEPENDENCY)),
    )


def read_perl(path: str, text: str) -> Manifest:
    """Read name, description, Perl version and modules asked for from a `Makefile.PL`, `Build.PL` or `cpanfile`."""
    name = re.search(r"""\b(?:NAME|dist_name|module_name)\s*=>\s*['"]([\w:-]+)['"]""", text)
    about = re.search(r"""\b(?:ABSTRACT|dist_abstract)\s*=>\s*['"]([^'"\n]+)['"]""", text)
    perl = re.search(
        r"""(?:^use\s+v?|\bMIN_PERL_VERSION\s*=>\s*['"]?|^[ \t]*requires\s+['"]perl['"]\W+)(5[\d._]+)""", text, re.M
    )
    return Manifest(
        path=path,
        ecosystem="perl",
        name=name[1] if name else "",
        description=string(about[1]) if about else "",
        runtime=f"Perl >={perl[1]}" if perl else "",
        runtime_line=line_of(perl),
        builder={"Makefile.PL": "MakeMaker", "Build.PL": "Module::Build"}.get(path.rpartition("/")[2], ""),
        dependencies=tuple(_perl_modules(path, text)),
    )


def _asked_for(path: str, text: str, wanted: re.Pattern[str]) -> Iterator[Dependency]:
    for number, line in enumerate(text.split("\n"), 1):
        found = wanted.search(line[:1000])
        if found:
            evidence = Evidence(path=path, line=number)
            yield Dependency(name=found[1], requirement=found[2] or "", group="runtime", evidence=evidence)


def _perl_modules(path: str, text: str) -> Iterator[Dependency]:
    """Yield the modules that a Perl manifest asks for: in hashes (`PREREQ_PM => {…}`) or line by line (a cpanfile)."""
    for block in _PERL_HASH.finditer(text):
        for found in _PERL_MODULE.finditer(text, block.start(2), block.end(2)):
            yield _perl_module(path, text, found.start(), block[1], found[1], found[2])
    for found in _CPANFILE_LINE.finditer(text):
        yield _perl_module(path, text, found.start(2), found[1] or "", found[2], found[3] or "")


def _perl_module(path: str, text: str, at: int, heading: str, name: str, version: str) -> Dependency:
    word = heading.lower().partition("_")[0]
    group: DependencyGroup = (
        "development" if word == "test" else "build" if word in ("build", "configure") else "runtime"
    )
    evidence = Evidence(path=path, line=text.count("\n", 0, at) + 1)
    return Dependency(name=name, requirement=_least(version), group=group, evidence=evidence)


def _least(version: str) -> str:
    return f">={version}" if version.strip("0.v") else ""
