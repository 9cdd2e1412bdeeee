"""Manifests of Ruby, PHP, .NET, Dart and Elixir."""

import re

from activities.project_init.outline import outline
from activities.project_init.parsing import (
    Lines,
    UnreadableError,
    line_of,
    parse_json,
    parse_xml,
    string,
    strings,
    table,
)
from activities.project_init.records import (
    Dependency,
    DependencyGroup,
    EntryPoint,
    Evidence,
    Manifest,
    Script,
)

_GEM = re.compile(r"""^\s*gem\s*\(?\s*["']([\w-]+)["']\s*(?:,\s*["']([^"']+)["'])?""")
_GEM_GROUP = re.compile(r"^\s*group\s+(.+?)\s+do\b")
_SPEC_DEPENDENCY = re.compile(
    r"""^\s*\w+\.add_(?:(development|runtime)_)?dependency\s*\(?\s*["']([\w-]+)["']\s*(?:,\s*["']([^"']+)["'])?"""
)
_SPEC_FIELD = re.compile(r"""^\s*\w+\.(name|version|summary|license|required_ruby_version)\s*=\s*["']([^"']+)["']""")
# At the beginning of a line, or in a list on one line, where other tuples are about other things.
_MIX_DEPENDENCY = re.compile(
    r"""(?:^\s*|(?:\[|\},)\s*(?=\{\s*:\w+\s*,\s*(?:"|\w+:)))\{\s*:(\w+)\s*,\s*(?:"([^"]+)")?([^{}]*)"""
)


def read_gemfile(path: str, text: str) -> Manifest:
    """Read a Bundler `Gemfile`."""
    wanted: list[Dependency] = []
    group: DependencyGroup = "runtime"
    for number, line in enumerate(text.split("\n"), 1):
        opened = _GEM_GROUP.match(line[:500])
        if opened:
            group = "development" if re.search(r"development|test", opened[1]) else "optional"
        elif line.strip() == "end":
            group = "runtime"
        found = _GEM.match(line[:500])
        if found:
            inline: DependencyGroup = "development" if re.search(r"group: .*(test|dev)", line[:500]) else group
            evidence = Evidence(path=path, line=number)
            wanted.append(Dependency(name=found[1], requirement=found[2] or "", group=inline, evidence=evidence))
    ruby = re.search(r"^ruby[ \t]+[\"']([^\"']+)", text, re.MULTILINE)
    return Manifest(
        path=path,
        ecosystem="ruby",
        runtime=f"Ruby {ruby[1]}" if ruby else "",
        runtime_line=line_of(ruby),
        builder="bundler",
        dependencies=tuple(wanted),
    )


def read_gemspec(path: str, text: str) -> Manifest:
    """Read the plain assignments of a `*.gemspec`."""
    fields: dict[str, tuple[str, int]] = {}
    wanted: list[Dependency] = []
    for number, line in enumerate(text.split("\n"), 1):
        assigned = _SPEC_FIELD.match(line[:500])
        if assigned:
            fields.setdefault(assigned[1], (assigned[2], number))
        found = _SPEC_DEPENDENCY.match(line[:500])
        if found:
            group: DependencyGroup = "development" if found[1] == "development" else "runtime"
            evidence = Evidence(path=path, line=number)
            wanted.append(Dependency(name=found[2], requirement=found[3] or "", group=group, evidence=evidence))
    ruby = fields.get("required_ruby_version")
    license_field = fields.get("license")
    return Manifest(
        path=path,
        ecosystem="ruby",
        name=fields.get("name", ("", 0))[0],
        version=fields.get("version", ("", 0))[0],
        description=fields.get("summary", ("", 0))[0],
        license=license_field[0] if license_field else "",
        license_line=license_field[1] if license_field else None,
        runtime=f"Ruby {ruby[0]}" if ruby else "",
        runtime_line=ruby[1] if ruby else None,
        builder="rubygems",
        dependencies=tuple(wanted),
    )


def read_composer(path: str, text: str) -> Manifest:
    """Read PHP's `composer.json`."""
    data = parse_json(text)
    if not isinstance(data, dict):
        raise UnreadableError("not a JSON object")
    lines = Lines(text)
    wanted: list[Dependency] = []
    groups: tuple[tuple[str, DependencyGroup], ...] = (("require", "runtime"), ("require-dev", "development"))
    for heading, group in groups:
        for name, version in table(data, heading).items():
            if "/" in name:
                evidence = Evidence(path=path, line=lines.of(name, after=heading))
                asked = string(version)
                requirement = "" if asked == "*" else asked
                wanted.append(Dependency(name=name, requirement=requirement, group=group, evidence=evidence))
    php = string(table(data, "require").get("php"))
    declared = data.get("license")
    return Manifest(
        path=path,
        ecosystem="php",
        name=string(data.get("name")),
        version=string(data.get("version")),
        description=string(data.get("description")),
        license=string(declared) or " OR ".join(strings(declared)),
        license_line=lines.of("license"),
        runtime=f"PHP {php}" if php else "",
        runtime_line=lines.of("php", after="require"),
        builder="composer",
        dependencies=tuple(wanted),
        entry_points=tuple(
            EntryPoint(
                name=program.rpartition("/")[2],
                kind="console script",
                target=program.removeprefix("./"),
                evidence=Evidence(path=path, line=lines.of("bin")),
            )
            for program in (strings(data.get("bin")) or [string(data.get("bin"))])
            if program
        ),
        scripts=tuple(
            Script(
                name=name,
                body=string(body) or "; ".join(strings(body)),
                evidence=Evidence(path=path, line=lines.of(name, after="scripts")),
            )
            for name, body in table(data, "scripts").items()
        ),
    )


_WEB_SDK, _WEB_FRAMEWORK = "Microsoft.NET.Sdk.Web", "Microsoft.AspNetCore.App"
_PROGRAM_SDKS = (_WEB_SDK, "Microsoft.NET.Sdk.Worker")  # what they build is a program by itself


def read_dotnet_solution(path: str, text: str) -> Manifest:
    """Read a `*.sln` or `*.slnx`: what is built and tested together."""
    if path.endswith(".slnx"):
        if parse_xml(text).tag != "Solution":
            raise UnreadableError("not a .NET solution: the root element is not 'Solution'")
    elif not text.lstrip().startswith("Microsoft Visual Studio Solution File"):
        raise UnreadableError("not a .NET solution: it does not begin as one")
    return Manifest(path=path, ecosystem="dotnet", name=path.rpartition("/")[2].rpartition(".")[0], builder="dotnet")


def read_dotnet_project(path: str, text: str) -> Manifest:
    """Read a `*.csproj`, `*.fsproj` or `*.vbproj`."""
    project = parse_xml(text)
    if project.tag != "Project":
        raise UnreadableError(f"not a .NET project: the root element is {project.tag!r}")
    wanted = []
    for each in project.all("PackageReference"):
        name = each.attributes.get("Include", "")
        if name:
            version = each.attributes.get("Version", "") or each.value("Version")
            evidence = Evidence(path=path, line=each.line)
            group: DependencyGroup = "build" if each.attributes.get("PrivateAssets") == "all" else "runtime"
            wanted.append(Dependency(name=name, requirement=version, group=group, evidence=evidence))
    # The SDK for the web refers to the framework of ASP.NET by itself; a library may do so in words.
    shared = [(each.attributes.get("Include", ""), each.line) for each in project.all("FrameworkReference")]
    if project.attributes.get("Sdk") == _WEB_SDK:
        shared.append((_WEB_FRAMEWORK, project.line))
    for name, line in dict(reversed(shared)).items():
        if name:
            evidence = Evidence(path=path, line=line)
            wanted.append(Dependency(name=name, requirement="", group="runtime", evidence=evidence))
    frameworks = [*project.all("TargetFramework"), *project.all("TargetFrameworks")]
    licenses = [*project.all("PackageLicenseExpression")]
    stem = path.rpartition("/")[2].rpartition(".")[0]
    outputs = [*project.all("OutputType")]
    programs = [each for each in outputs if each.text.strip().lower() in ("exe", "winexe")]
    if not outputs and project.attributes.get("Sdk") in _PROGRAM_SDKS:
        programs = [project]
    return Manifest(
        path=path,
        ecosystem="dotnet",
        name=next((each.text.strip() for each in project.all("AssemblyName")), stem),
        version=next((each.text.strip() for each in project.all("Version")), ""),
        description=next((string(each.text) for each in project.all("Description")), ""),
        license=licenses[0].text.strip() if licenses else "",
        license_line=licenses[0].line if licenses else None,
        runtime=f".NET {frameworks[0].text.strip()}" if frameworks else "",
        runtime_line=frameworks[0].line if frameworks else None,
        builder="dotnet",
        dependencies=tuple(wanted),
        entry_points=tuple(
            EntryPoint(name=stem, kind="binary", target=path, evidence=Evidence(path=path, line=each.line))
            for each in programs[:1]
        ),
    )


def read_pubspec(path: str, text: str) -> Manifest:
    """Read Dart's and Flutter's `pubspec.yaml`."""
    groups: dict[str, DependencyGroup] = {"dependencies": "runtime", "dev_dependencies": "development"}
    fields: dict[str, tuple[str, int]] = {}
    wanted: list[Dependency] = []
    for node in outline(text):
        if len(node.path) == 1 or node.path == ("environment", "sdk"):
            fields.setdefault(node.path[-1], (node.value, node.line))
        elif len(node.path) == 2 and node.path[0] in groups:
            evidence = Evidence(path=path, line=node.line)
            requirement = "" if node.value == "any" else node.value
            group = groups[node.path[0]]
            wanted.append(Dependency(name=node.path[1], requirement=requirement, group=group, evidence=evidence))
    if "name" not in fields:
        raise UnreadableError("no name")
    sdk = fields.get("sdk")
    return Manifest(
        path=path,
        ecosystem="dart",
        name=fields["name"][0],
        version=fields.get("version", ("", 0))[0],
        description=string(fields.get("description", ("", 0))[0]),
        runtime=f"Dart {sdk[0]}" if sdk else "",
        runtime_line=sdk[1] if sdk else None,
        builder="pub",
        dependencies=tuple(wanted),
    )


def read_mix(path: str, text: str) -> Manifest:
    """Read the plain parts of Elixir's `mix.exs`."""
    name = re.search(r"\bapp:\s*:(\w+)", text)
    version = re.search(r"\bversion:\s*\"([^\"]+)\"", text)
    elixir = re.search(r"\belixir:\s*\"([^\"]+)\"", text)
    wanted: list[Dependency] = []
    for number, line in enumerate(text.split("\n"), 1):
        for found in () if line.lstrip().startswith("#") else _MIX_DEPENDENCY.finditer(line[:500]):
            group: DependencyGroup = "development" if re.search(r"only:.*:(dev|test)", found[3]) else "runtime"
            evidence = Evidence(path=path, line=number)
            wanted.append(Dependency(name=found[1], requirement=found[2] or "", group=group, evidence=evidence))
    return Manifest(
        path=path,
        ecosystem="elixir",
        name=name[1] if name else "",
        version=version[1] if version else "",
        runtime=f"Elixir {elixir[1]}" if elixir else "",
        runtime_line=line_of(elixir),
        builder="mix",
        dependencies=tuple(wanted),
    )
