"""Manifests of .NET: projects and solutions."""

import pytest

from activities.project_init.manifests import others
from activities.project_init.manifests.registry import reader_for
from activities.project_init.parsing import UnreadableError
from activities.project_init.technologies import technologies_of
from tests.unit.project_init.test_manifests import wanted


class TestDotnet:
    """What the reader of .NET makes of its files."""

    def test_reads_a_dotnet_project(self) -> None:
        """Package references, target framework, and whether it is a program."""
        text = (
            '<Project Sdk="x">\n<PropertyGroup><OutputType>Exe</OutputType><TargetFramework>net8.0</TargetFramework>'
            '</PropertyGroup>\n<ItemGroup><PackageReference Include="A" Version="1" /></ItemGroup></Project>'
        )
        found = others.read_dotnet_project("src/App.csproj", text)
        assert (found.name, found.runtime, wanted(found)) == ("App", ".NET net8.0", [("A", "1", "runtime", 3)])
        assert [each.target for each in found.entry_points] == ["src/App.csproj"]

    @pytest.mark.parametrize(
        ("sdk", "output", "starts"),
        [
            ("Microsoft.NET.Sdk.Web", "", True),
            ("Microsoft.NET.Sdk.Web", "Library", False),
            ("Microsoft.NET.Sdk", "", False),
        ],
    )
    def test_a_web_project_of_dotnet_is_a_program(self, sdk: str, output: str, starts: bool) -> None:
        """Unless it says otherwise."""
        kind = f"<PropertyGroup><OutputType>{output}</OutputType></PropertyGroup>" if output else ""
        found = others.read_dotnet_project("App.csproj", f'<Project Sdk="{sdk}">{kind}</Project>')
        assert bool(found.entry_points) == starts

    @pytest.mark.parametrize(
        ("project", "line"),
        [
            ('<Project Sdk="Microsoft.NET.Sdk.Web"></Project>', 1),
            (
                '<Project Sdk="Microsoft.NET.Sdk.Web">\n<ItemGroup><FrameworkReference Include='
                '"Microsoft.AspNetCore.App"/></ItemGroup></Project>',
                2,
            ),
            (
                '<Project Sdk="x"><ItemGroup>'
                '<FrameworkReference Include="Microsoft.AspNetCore.App"/></ItemGroup></Project>',
                1,
            ),
        ],
    )
    def test_a_web_project_of_dotnet_is_built_with_asp_net(self, project: str, line: int) -> None:
        """It names no package for that."""
        found = others.read_dotnet_project("App.csproj", project)
        assert wanted(found) == [("Microsoft.AspNetCore.App", "", "runtime", line)]
        assert [each.name for each in technologies_of([found])] == ["ASP.NET"]

    @pytest.mark.parametrize(
        ("path", "text"),
        [
            ("x/Shop.sln", "\nMicrosoft Visual Studio Solution File, Format Version 12.00\n# Visual Studio 17\n"),
            ("x/Shop.slnx", '<Solution><Project Path="App.csproj" /></Solution>'),
        ],
    )
    def test_reads_a_dotnet_solution(self, path: str, text: str) -> None:
        """Both of its formats, by their name; what else ends so is none."""
        known = reader_for(path)
        assert known is not None
        found = known[1](path, text)
        assert (known[0], found.ecosystem, found.name) == ("dotnet", "dotnet", "Shop")
        with pytest.raises(UnreadableError, match=r"not a \.NET solution"):
            known[1](path, "<Other/>")
