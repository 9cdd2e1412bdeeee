"""Which language a file is in, by its name, its extension, or its first line."""

import re
from collections.abc import Iterable

from activities.project_init.files import SourceTree
from activities.project_init.listing import Progress
from activities.project_init.records import Language, LanguageKind, SourceFile

_PROGRAMMING = """
Ada: adb ads | Assembly: asm s | Astro: astro | Awk: awk | Ballerina: bal | Batch: bat cmd | C: c h
C#: cs csx | C++: cc cpp cxx c++ hh hpp hxx inl ipp | CUDA: cu cuh | Clojure: clj cljc cljs | Cobol: cob cbl
CoffeeScript: coffee | Common Lisp: lisp cl | Crystal: cr | Cython: pyx pxd | D: d | Dart: dart | Elixir: ex exs
Elm: elm | Emacs Lisp: el | Erlang: erl hrl | F#: fs fsx fsi | Fortran: f f90 f95 f03 for | GLSL: glsl vert frag
Gleam: gleam | Go: go | Groovy: groovy gvy | HCL: tf hcl tfvars | Haskell: hs lhs | Java: java
JavaScript: js mjs cjs jsx | Julia: jl | Jupyter Notebook: ipynb | Kotlin: kt kts | Lua: lua | MATLAB: mlx
Mojo: mojo | Nim: nim nims | Nix: nix | OCaml: ml mli | Objective-C: m mm | PHP: php phtml | Pascal: pas pp
Perl: pl pm t | PowerShell: ps1 psm1 psd1 | Prolog: pro | Protocol Buffers: proto | PureScript: purs
Python: py pyi pyw | R: r | Racket: rkt | Ruby: rb rake gemspec | Rust: rs | SQL: sql | Scala: scala sc sbt
Scheme: scm ss | Shell: sh bash zsh ksh fish | Solidity: sol | Svelte: svelte | Swift: swift | Tcl: tcl
Thrift: thrift | TypeScript: ts mts cts tsx | V: vlang | VHDL: vhd vhdl | Verilog: v sv svh | Vim script: vim
Visual Basic: vb | Vue: vue | WebAssembly: wat | Zig: zig | GraphQL: graphql gql | Starlark: bzl star | Rego: rego
"""
_MARKUP = """
CSS: css | HTML: html htm xhtml | Less: less | Sass: scss sass | SVG: svg | Jinja: j2 jinja jinja2
Handlebars: hbs handlebars mustache | EJS: ejs | Pug: pug | TeX: tex sty bib | XML: xml xsd xsl xslt plist
ERB: erb | Liquid: liquid | Twig: twig | Gettext: po pot
"""
_DATA = """
CSV: csv tsv | INI: ini cfg conf properties | JSON: json jsonc json5 jsonl ndjson | TOML: toml | YAML: yaml yml
Diff: diff patch
"""
_PROSE = "Markdown: md markdown mdx | reStructuredText: rst | AsciiDoc: adoc asciidoc | Text: txt | Org: org"

_FILE_NAMES = {
    "Makefile": "Makefile",
    "GNUmakefile": "Makefile",
    "makefile": "Makefile",
    "Dockerfile": "Dockerfile",
    "Containerfile": "Dockerfile",
    "Jenkinsfile": "Groovy",
    "Vagrantfile": "Ruby",
    "Gemfile": "Ruby",
    "Rakefile": "Ruby",
    "Brewfile": "Ruby",
    "Podfile": "Ruby",
    "justfile": "Just",
    "Justfile": "Just",
    "CMakeLists.txt": "CMake",
    "SConstruct": "Python",
    "BUILD": "Starlark",
    "BUILD.bazel": "Starlark",
    "WORKSPACE": "Starlark",
    "Tiltfile": "Starlark",
    "Pipfile": "TOML",
    "Procfile": "YAML",
    "go.mod": "Go module",
    "go.sum": "Go module",
    "meson.build": "Meson",
    ".editorconfig": "INI",
    ".gitignore": "Ignore list",
    ".dockerignore": "Ignore list",
    "LICENSE": "Text",
    "COPYING": "Text",
    "NOTICE": "Text",
    "README": "Text",
    "AUTHORS": "Text",
}
_NAMED_KINDS: dict[str, LanguageKind] = {
    "Makefile": "programming",
    "Dockerfile": "programming",
    "Just": "programming",
    "CMake": "programming",
    "Meson": "programming",
    "Go module": "data",
    "Ignore list": "data",
}
_RECIPES = frozenset({"Makefile", "CMake", "Just", "Meson"})  # how programs are made; seldom the programs
_INTERPRETERS = {
    "python": "Python",
    "node": "JavaScript",
    "deno": "TypeScript",
    "bun": "TypeScript",
    "bash": "Shell",
    "sh": "Shell",
    "dash": "Shell",
    "zsh": "Shell",
    "ksh": "Shell",
    "fish": "Shell",
    "ruby": "Ruby",
    "perl": "Perl",
    "php": "PHP",
    "lua": "Lua",
    "awk": "Awk",
    "gawk": "Awk",
    "Rscript": "R",
    "julia": "Julia",
    "groovy": "Groovy",
    "tclsh": "Tcl",
    "pwsh": "PowerShell",
    "make": "Makefile",
    "elixir": "Elixir",
    "runghc": "Haskell",
}
_SHEBANG = re.compile(r"#!\s*(?:\S*/)?(?:env\s+(?:-\S+\s+)*)?(?:\S*/)?([A-Za-z]+)[\d.]*\b")
_KIND_ORDER: tuple[LanguageKind, ...] = ("programming", "markup", "data", "prose")
_SHEBANG_BYTES = 128
_TELLING_BYTES = 4096
_SHARED_ENDINGS = {
    "d": re.compile(rb"^\s*(module|import)\s+[\w.]+\s*[:;]|\bvoid main\s*\(|\bunittest\s*\{", re.MULTILINE),
    "t": re.compile(rb"^\s*use\s+\w|\A#!.*perl|^\s*package\s+\w+(::\w+)*;", re.MULTILINE),
}
"""Endings that other files have as well, lists of dependencies and pages, and what shows that it is a program."""


def _table() -> tuple[dict[str, str], dict[str, LanguageKind]]:
    extensions: dict[str, str] = {}
    kinds = dict(_NAMED_KINDS)
    groups: tuple[tuple[str, LanguageKind], ...] = (
        (_PROGRAMMING, "programming"),
        (_MARKUP, "markup"),
        (_DATA, "data"),
        (_PROSE, "prose"),
    )
    for table, kind in groups:
        for entry in table.replace("\n", "|").split("|"):
            if entry.strip():
                name, _, endings = entry.strip().partition(": ")
                kinds[name] = kind
                extensions |= dict.fromkeys(endings.split(), name)
    return extensions, kinds


_EXTENSIONS, _KINDS = _table()


def language_of(path: str, first_line: str = "") -> str | None:
    """Return the language of a file, or None where neither its name nor its first line tells.

    Args:
        path: The file; only its name counts.
        first_line: For a name without an extension: the line that may name an interpreter.

    Example:
        >>> language_of("src/app.tsx"), language_of("Dockerfile.dev"), language_of("run", "#!/usr/bin/env python3")
        ('TypeScript', 'Dockerfile', 'Python')
    """
    name = path.rpartition("/")[2]
    if name in _FILE_NAMES:
        return _FILE_NAMES[name]
    stem, dot, extension = name.rpartition(".")
    if extension == "dockerignore":
        return "Ignore list"
    if stem.split(".")[0] in ("Dockerfile", "Containerfile") or name.startswith("Dockerfile."):
        return "Dockerfile"
    if dot and stem and extension.lower() in _EXTENSIONS:
        return _EXTENSIONS[extension.lower()]
    if extension == "mk" and dot:
        return "Makefile"
    found = _SHEBANG.match(first_line)
    return _INTERPRETERS.get(found[1]) if found else None


def kind_of(language: str) -> LanguageKind:
    """Return whether a language is for programs, markup, data or prose.

    Example:
        >>> kind_of("Python"), kind_of("TOML")
        ('programming', 'data')
    """
    return _KINDS.get(language, "data")


def language_of_file(tree: SourceTree, file: SourceFile) -> str | None:
    """Return the language of a text of the tree, reading its first line only where its name says nothing."""
    if file.kind != "text":
        return None
    known = language_of(file.path)
    telling = _SHARED_ENDINGS.get(file.path.rpartition(".")[2])
    if known is not None and telling and not telling.search(tree.head(file.path, _TELLING_BYTES) or b""):
        return None
    if known is not None or "." in file.path.rpartition("/")[2] or file.size == 0:
        return known
    start = (tree.head(file.path, _SHEBANG_BYTES) or b"").split(b"\n", 1)[0]
    return language_of(file.path, start.decode("utf-8", "replace"))


def count_languages(tree: SourceTree, files: Iterable[SourceFile], progress: Progress) -> tuple[Language, ...]:
    """Return how much of each language there is: programming first, then by lines, then by name.

    How programs are made comes after the programs: a project is not written in a Makefile, be that the longest file.
    Texts too long to analyse count by their lines and bytes like any other.
    """
    totals: dict[str, list[int]] = {}
    for number, file in enumerate(files):
        if number % 1000 == 0:
            progress(f"languages: {number} files")
        name = language_of_file(tree, file)
        if name is not None:
            total = totals.setdefault(name, [0, 0, 0])
            total[0] += 1
            total[1] += file.size
            total[2] += file.lines
    found = (
        Language(name=name, kind=kind_of(name), files=count, bytes=size, lines=lines)
        for name, (count, size, lines) in totals.items()
    )
    return tuple(sorted(found, key=_rank))


def _rank(language: Language) -> tuple[int, bool, int, str]:
    return _KIND_ORDER.index(language.kind), language.name in _RECIPES, -language.lines, language.name
