"""Which language a file is written in, by `identify`: its name, its extension, or its first line."""

import io
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Literal

from identify.identify import parse_shebang, tags_from_filename, tags_from_interpreter

LanguageKind = Literal["programming", "markup", "data", "prose"]

_TAGS: dict[LanguageKind, str] = {
    "programming": """python=Python pyi=Python cython=Cython jupyter=Jupyter_Notebook javascript=JavaScript
        jsx=JavaScript ts=TypeScript tsx=TypeScript vue=Vue svelte=Svelte astro=Astro coffee=CoffeeScript go=Go
        rust=Rust java=Java
        kotlin=Kotlin scala=Scala groovy=Groovy clojure=Clojure c=C c++=C++ cuda=CUDA objective-c=Objective-C c#=C#
        f#=F# vb=Visual_Basic swift=Swift dart=Dart ruby=Ruby php=PHP perl=Perl lua=Lua r=R julia=Julia elixir=Elixir
        erlang=Erlang haskell=Haskell ocaml=OCaml purescript=PureScript gleam=Gleam nim=Nim crystal=Crystal zig=Zig
        fortran=Fortran pascal=Pascal verilog=Verilog system-verilog=Verilog vhdl=VHDL asm=Assembly solidity=Solidity
        shell=Shell batch=Batch powershell=PowerShell awk=Awk vim=Vim_script sql=SQL proto=Protocol_Buffers
        graphql=GraphQL hcl=HCL terraform=HCL nix=Nix bazel=Starlark makefile=Makefile cmake=CMake meson=Meson
        dockerfile=Dockerfile""",
    "markup": """html=HTML xhtml=HTML css=CSS less=Less scss=Sass sass=Sass svg=SVG jinja=Jinja handlebars=Handlebars
        ejs=EJS pug=Pug tex=TeX xml=XML erb=ERB liquid=Liquid twig=Twig""",
    "data": "csv=CSV tsv=CSV ini=INI json=JSON json5=JSON toml=TOML yaml=YAML diff=Diff",
    "prose": "markdown=Markdown mdx=Markdown rst=reStructuredText asciidoc=AsciiDoc",
}
_KNOWN: dict[str, tuple[str, LanguageKind]] = {
    tag: (name.replace("_", " "), kind)
    for kind, pairs in _TAGS.items()
    for tag, name in (pair.split("=") for pair in pairs.split())
}


@lru_cache(maxsize=100_000)
def language_of(path: str, start: bytes = b"") -> tuple[str, LanguageKind] | None:
    """Return the language of a file and its kind, or None.

    Example:
        >>> language_of("src/app.py"), language_of("bin/run", b"#!/usr/bin/env bash")
        (('Python', 'programming'), ('Shell', 'programming'))
    """
    tags = tags_from_filename(PurePosixPath(path).name)
    if not tags and start.startswith(b"#!") and (words := parse_shebang(io.BytesIO(start))):
        tags = tags_from_interpreter(PurePosixPath(words[0]).name)
    return next((_KNOWN[tag] for tag in _KNOWN if tag in tags), None)
