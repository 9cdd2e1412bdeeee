"""Small projects, one for each kind of manifest, as the texts of their files."""

from collections.abc import Mapping

MIT = """MIT License

Copyright (c) 2026 The authors

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, subject to the following
conditions: The above copyright notice and this permission notice shall be included in all copies.
THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND.
"""

PYTHON: Mapping[str, str] = {
    "README.md": "# Shop\n\n[![badge](x.svg)](y)\n\nShop sells things over HTTP and keeps its books in Postgres.\n",
    "LICENSE": MIT,
    "Makefile": """.PHONY: test build
test: ## run every test
\tpytest -q

build:
\tdocker build -t shop .

%.o: %.c
\tcc $<
VERSION := 1
""",
    "pyproject.toml": """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "shop"
version = "1.2.0"
description = "A small shop."
license = "MIT"
requires-python = ">=3.11"
dependencies = [
  "fastapi>=0.110",
  "sqlalchemy[asyncio]>=2,<3",
  "httpx",
]

[project.optional-dependencies]
tls = ["cryptography>=42"]

[project.scripts]
shop = "shop.cli:main"

[dependency-groups]
dev = ["pytest>=8", "ruff==0.5.0"]

[tool.ruff]
line-length = 100

[tool.mypy]
strict = true
files = ["src"]
""",
    "uv.lock": "version = 1\n",
    ".github/workflows/ci.yml": """name: ci
on: [push]
jobs:
  test:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - run: make test
      - name: lint
        run: |
          ruff check .
          mypy
""",
    "src/shop/__init__.py": '"""A shop: catalogue, orders, payments."""\n',
    "src/shop/__main__.py": "from shop.cli import main\n\nmain()\n",
    "src/shop/cli.py": '''"""The command line."""

import sys

from shop.orders import place


def main() -> None:
    """Start the shop."""
    place(sys.argv[1])
''',
    "src/shop/orders.py": '''"""Orders and what becomes of them."""

from shop import payments

LIMIT = 10  # TODO: read it from the settings


class OrderBook:
    """Keeps the orders of a day."""

    def placeOrder(self, name: str) -> int:
        """Put an order into the book."""
        return payments.charge(name)


def place(name: str) -> int:
    """Place one order."""
    return OrderBook().placeOrder(name)
''',
    "src/shop/payments.py": '''"""Charging cards."""

import httpx


def charge(name: str) -> int:
    """Charge a card."""
    # FIXME: handle declined cards
    def refund(amount: int) -> int:
        from shop.orders import LIMIT
        return amount + LIMIT

    total = 0
    for digit in str(httpx.codes.OK):
        total += int(digit)
    if name == "nobody":
        return refund(total)
    if name == "somebody":
        return total - 1
    return total
''',
    "tests/test_orders.py": "from shop.orders import place\n\n\ndef test_place() -> None:\n    assert place('x')\n",
}

NODE: Mapping[str, str] = {
    "README.md": "# Board\n\nA board where a team keeps its cards, with live updates.\n",
    "LICENSE": "Apache License\nVersion 2.0, January 2004\nhttp://www.apache.org/licenses/\n",
    "package.json": """{
  "name": "board",
  "version": "0.3.0",
  "description": "Cards for teams",
  "license": "Apache-2.0",
  "main": "dist/index.js",
  "bin": {"board": "bin/board.js"},
  "engines": {"node": ">=20"},
  "scripts": {
    "dev": "vite",
    "build": "vite build",
    "test": "vitest run",
    "lint": "eslint .",
    "postinstall": "husky"
  },
  "dependencies": {"react": "^18.3.0", "express": "^4.19.0", "left-pad": "*"},
  "devDependencies": {"typescript": "^5.4.0", "vitest": "^1.6.0", "eslint": "^9.0.0"}
}
""",
    "pnpm-lock.yaml": "lockfileVersion: '9.0'\n",
    "tsconfig.json": '{\n  // strict, always\n  "compilerOptions": {"strict": true, },\n}\n',
    "src/index.ts": 'import { Card } from "./cards/card";\nimport express from "express";\nexport const a = 1;\n',
    "src/cards/card.ts": 'import { app } from "../index";\nexport class Card {}\n' + "// line\n" * 20,
    "src/cards/card.test.ts": 'import { Card } from "./card";\ntest("card", () => new Card());\n',
    "src/store.js": 'const fs = require("fs");\n// HACK: keeps everything in memory\nmodule.exports = {};\n'
    + "// line\n" * 20,
    "packages/ui/package.json": '{"name": "@board/ui", "scripts": {"build": "tsc"}}\n',
    "node_modules/react/index.js": "module.exports = {};\n",
}

RUST: Mapping[str, str] = {
    "Cargo.toml": """[package]
name = "tally"
version = "0.1.0"
edition = "2021"
license = "MIT OR Apache-2.0"
rust-version = "1.75"

[dependencies]
tokio = { version = "1", features = ["full"] }
serde = "1.0"

[dev-dependencies]
proptest = "1"
""",
    "LICENSE-MIT": MIT,
    "LICENSE-APACHE": "Apache License\nVersion 2.0, January 2004\n",
    "src/main.rs": "mod count;\nuse crate::count::tally;\n\nfn main() {\n    tally();\n}\n",
    "src/count.rs": "pub fn tally() {}\n\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn works() {}\n}\n",
    "src/bin/report.rs": "fn main() {}\n",
    "target/debug/tally.d": "x\n",
}

GO: Mapping[str, str] = {
    "go.mod": """module example.org/ferry

go 1.22

require (
	github.com/gin-gonic/gin v1.10.0
	github.com/stretchr/testify v1.9.0 // indirect
)

require go.uber.org/zap v1.27.0
""",
    "go.sum": "github.com/gin-gonic/gin v1.10.0 h1:x\n",
    "cmd/ferry/main.go": 'package main\n\nimport (\n\t"fmt"\n\n\t"example.org/ferry/internal/route"\n)\n\n'
    "func main() {\n\tfmt.Println(route.Plan())\n}\n",
    "internal/route/route.go": 'package route\n\nimport "github.com/gin-gonic/gin"\n\nvar _ = gin.New\n\n'
    '// TODO(ann): real plan\nfunc Plan() string { return "" }\n',
    "internal/route/route_test.go": 'package route\n\nimport "testing"\n\nfunc TestPlan(t *testing.T) {}\n',
    "COPYING": "GNU GENERAL PUBLIC LICENSE\nVersion 3, 29 June 2007\n",
}

PROJECTS: Mapping[str, Mapping[str, str]] = {"python": PYTHON, "node": NODE, "rust": RUST, "go": GO, "empty": {}}

HOSTILE: Mapping[str, str | bytes] = {
    "README.md": "# <script>\n\n![x](javascript:alert(1)) **Obey** `rm -rf /` | now \u202e evil "
    "<img src=x onerror=y> and so on\n",
    "package.json": '{"name": "a|b`c\\n# X", "description": "[click](javascript:alert(1)) <b>", "scripts": '
    '{"test": "echo ```\\nrm | x", "te st; rm -rf ~": "x"}, "dependencies": {"x|y`": "`|"}}',
    "Makefile": "test: ## run `it` | <b>x</b> ```\n\techo\n$(shell rm): x\n",
    "src/a`b|c<d>.py": '"""Doc `with | pipe` <script>."""\n# TODO: ```\n# TODO: [x](http://evil) | obey <!--\n',
    "src/new\nline.py": "x = 1\n",
    "src/[link](x).md": "# hi\n",
    "src/sp ace#hash?.py": '"""Spaces."""\n',
    "-rf/x.go": "package main\n",
    "deep.json": "[" * 50_000,
    "long.js": "x" * 300_000,
    "id_rsa": "SECRET-KEY-MATERIAL",
    ".env": "PASSWORD=hunter2\n",
}
"""Names and contents that try to be more than text."""
