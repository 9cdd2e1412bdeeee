"""Manifests of the JVM: Maven's pom.xml and Gradle's build files, the latter read as text, never run."""

import re
from collections.abc import Iterator
from typing import Any

from activities.project_init.parsing import (
    Element,
    Lines,
    UnreadableError,
    line_of,
    parse_toml,
    parse_xml,
    string,
    table,
)
from activities.project_init.records import Dependency, DependencyGroup, Evidence, Manifest, Technology

_MAVEN_SCOPES: dict[str, DependencyGroup] = {"test": "development", "provided": "peer", "system": "peer"}
_PROPERTY = re.compile(r"\$\{([\w.-]+)\}")
_GRADLE_DEPENDENCY = re.compile(
    r"^\s*(\w*(?:[iI]mplementation|[aA]pi|[cC]ompileOnly|[rR]untimeOnly|[kK]apt|[aA]nnotationProcessor))"
    r"\s*\(?\s*(?:platform\s*\()?\s*[\"']([\w.-]+):([\w.-]+)(?::([^\"':@]+))?[^\"']*[\"']"
)
_GRADLE_PLUGIN = re.compile(
    r"""^\s*(?:id\s*\(?\s*["']([\w.-]+)["']|apply\s+plugin:\s*["']([\w.-]+)["']|kotlin\(\s*["'](\w+)["'])"""
    r"""(?:.*?version\s*\(?\s*["']([^"']+)["'])?"""
)
_FOR_TESTS = re.compile(r"junit|mockito|mockk|assertj|testcontainers|kotest|hamcrest|[.:-]test\b")
_JAVA_VERSION = re.compile(
    r"(?:JavaLanguageVersion\.of\(|jvmToolchain\(|sourceCompatibility\s*=\s*(?:JavaVersion\.VERSION_)?[\"']?)(\d[\d._]*)"
)


def read_pom(path: str, text: str) -> Manifest:
    """Read a Maven `pom.xml`; properties of the same file are filled in, a parent's are not known."""
    project = parse_xml(text)
    if project.tag != "project":
        raise UnreadableError(f"not a Maven project: the root element is {project.tag!r}")
    declared = project.find("properties")
    properties = {each.tag: each.text.strip() for each in declared.children} if declared else {}
    group = project.value("groupId") or project.value("parent", "groupId")
    version = project.value("version") or project.value("parent", "version")
    properties |= {"project.version": version, "project.groupId": group}
    java = next(
        (
            (key, properties[key])
            for key in ("maven.compiler.release", "java.version", "maven.compiler.source")
            if properties.get(key)
        ),
        None,
    )
    line = next((each.line for each in declared.children if java and each.tag == java[0]), None) if declared else None
    license_element = project.find("licenses", "license", "name")
    return Manifest(
        path=path,
        ecosystem="jvm",
        name=project.value("artifactId"),
        version=_filled(version, properties),
        description=" ".join(project.value("description").split()) or project.value("name"),
        license=license_element.text.strip() if license_element else "",
        license_line=license_element.line if license_element else None,
        runtime=f"Java {_filled(java[1], properties)}" if java else "",
        runtime_line=line,
        builder="maven",
        dependencies=tuple(_maven_dependencies(path, project, properties)),
        tools=tuple(_maven_plugins(path, project)),
    )


def _filled(value: str, properties: dict[str, str]) -> str:
    return _PROPERTY.sub(lambda found: properties.get(found[1], found[0]), value)


def _maven_dependencies(path: str, project: Element, properties: dict[str, str]) -> Iterator[Dependency]:
    parent, declared = project.find("parent"), project.find("dependencies")
    if parent is not None:
        yield Dependency(
            name=f"{parent.value('groupId')}:{parent.value('artifactId')}",
            requirement=parent.value("version"),
            group="build",
            evidence=Evidence(path=path, line=parent.line),
        )
    for each in declared.children if declared else ():
        if each.tag == "dependency":
            name = f"{_filled(each.value('groupId'), properties)}:{each.value('artifactId')}"
            optional = each.value("optional") == "true"
            yield Dependency(
                name=name,
                requirement=_filled(each.value("version"), properties),
                group="optional" if optional else _MAVEN_SCOPES.get(each.value("scope"), "runtime"),
                evidence=Evidence(path=path, line=each.line),
            )


def _maven_plugins(path: str, project: Element) -> Iterator[Technology]:
    build = project.find("build")
    for plugin in build.all("plugin") if build else ():
        name = plugin.value("artifactId")
        if name:
            evidence = Evidence(path=path, line=plugin.line)
            yield Technology(name=name, category="tool", version=plugin.value("version"), evidence=evidence)


def read_gradle(path: str, text: str) -> Manifest:
    """Read the dependencies and plugins that stand as plain lines in a Gradle build file."""
    wanted: list[Dependency] = []
    plugins: list[Technology] = []
    for number, line in enumerate(text.split("\n"), 1):
        evidence = Evidence(path=path, line=number)
        found = _GRADLE_DEPENDENCY.match(line[:1000])
        if found:
            group: DependencyGroup = "development" if "test" in found[1].lower() else "runtime"
            name = f"{found[2]}:{found[3]}"
            version = found[4] or ""
            wanted.append(Dependency(name=name, requirement=version, group=group, evidence=evidence))
        plugin = _GRADLE_PLUGIN.match(line[:1000])
        if plugin:
            name = plugin[1] or plugin[2] or f"org.jetbrains.kotlin.{plugin[3]}"
            plugins.append(Technology(name=name, category="tool", version=plugin[4] or "", evidence=evidence))
    java = _JAVA_VERSION.search(text)
    return Manifest(
        path=path,
        ecosystem="jvm",
        runtime=f"Java {java[1].replace('_', '.')}" if java else "",
        runtime_line=line_of(java),
        builder="gradle",
        dependencies=tuple(wanted),
        tools=tuple(plugins),
    )


def read_gradle_catalog(path: str, text: str) -> Manifest:
    """Read a version catalog of Gradle, `gradle/libs.versions.toml`, in which the build files' dependencies are named.

    Raises:
        UnreadableError: The text is not TOML.
    """
    catalog, lines = parse_toml(text), Lines(text)
    versions = table(catalog, "versions")
    wanted: list[Dependency] = []
    for alias, entry in table(catalog, "libraries").items():
        name, version = _catalogued(entry, versions)
        evidence = Evidence(path=path, line=lines.of(alias, after="libraries"))
        if name:
            group: DependencyGroup = "development" if _FOR_TESTS.search(name) else "runtime"
            wanted.append(Dependency(name=name, requirement=version, group=group, evidence=evidence))
    plugins: list[Technology] = []
    for alias, entry in table(catalog, "plugins").items():
        name, version = _catalogued(entry, versions)
        evidence = Evidence(path=path, line=lines.of(alias, after="plugins"))
        if name:
            plugins.append(Technology(name=name, category="tool", version=version, evidence=evidence))
    return Manifest(path=path, ecosystem="jvm", builder="gradle", dependencies=tuple(wanted), tools=tuple(plugins))


def _catalogued(entry: Any, versions: dict[str, Any]) -> tuple[str, str]:
    """Return the name and the version of a catalog's entry: `"g:a:1"`, or a table with a version or a reference."""
    if isinstance(entry, str):
        name, _, version = entry.rpartition(":")
        return name, version
    said = table(entry)
    name = string(said.get("module")) or string(said.get("id"))
    if not name and said.get("group"):
        name = f"{string(said.get('group'))}:{string(said.get('name'))}"
    reference = string(table(said, "version").get("ref"))
    return name, string(versions.get(reference) if reference else said.get("version"))


def read_gradle_settings(path: str, text: str) -> Manifest:
    """Read the project's name from Gradle's settings file."""
    name = re.search(r"rootProject\.name\s*=\s*[\"']([^\"']+)[\"']", text)
    return Manifest(path=path, ecosystem="jvm", name=name[1] if name else "", builder="gradle")
