"""Rules of our own on Python's syntax tree: work that grows faster than its input, or waits once for every turn.

They read one function at a time and know no types, so each says how sure it is. They find what stands in the code;
whether a loop is ever long, its author knows.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from activities.code_review.records import Finding, Severity, SourceText, column_at

_DEEP = 3
_WAITING_METHODS = frozenset({"execute", "scalar", "scalars"})
_WAITING_MODULES = frozenset({"requests", "httpx", "subprocess", "urllib"})
_WAITING_CALLS = frozenset({"urlopen", "getoutput", "check_output", "check_call"})
_NOQA = re.compile(r"#\s*noqa(?!\s*:)|#\s*noqa\s*:[^#]*\b(LOOP\d+)", re.IGNORECASE)

Loop = ast.For | ast.AsyncFor | ast.While
Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Module


@dataclass(frozen=True)
class _Rule:
    """What one of the rules says.

    Attributes:
        id: Its id.
        name: Its name.
        severity: How grave its findings are.
        confidence: How sure they are.
        message: What is wrong; `{}` is what is named.
        advice: What to do instead.
    """

    id: str
    name: str
    severity: Severity
    confidence: int
    message: str
    advice: str


_NESTED = _Rule(
    "LOOP301",
    "loops-nested-deep",
    "medium",
    75,
    "{} loops stand one inside another: the work grows with the product of their lengths",
    "Index one side by a dictionary first, or let a library do the join",
)
_WAITS = _Rule(
    "LOOP302",
    "round-trip-in-loop",
    "medium",
    60,
    "{} is called in a loop: one round trip for every turn",
    "Ask once for all of them, or at the same time",
)
_SEARCHES = _Rule(
    "LOOP303",
    "search-in-list-in-loop",
    "medium",
    75,
    "{} is a list and searched in a loop: each search reads it from the beginning",
    "Make it a set, if its elements can be hashed",
)
_GROWS = _Rule(
    "LOOP304",
    "text-grown-in-loop",
    "low",
    65,
    "{} is a text that a loop adds to: each turn may copy all of it",
    "Collect the parts in a list and join them at the end",
)
_SHIFTS = _Rule(
    "LOOP305",
    "list-shifted-in-loop",
    "medium",
    70,
    "{} shifts every element of a list, in a loop",
    "Use collections.deque, which takes and gives at both ends",
)


def find_loops(file: SourceText) -> list[Finding]:
    r"""Return what the rules find in one file; nothing where it is no valid Python.

    Example:
        >>> text = "def f(ids, db):\n    for id in ids:\n        db.execute('select 1', id)\n"
        >>> [(one.line, one.rule) for one in find_loops(SourceText(path="a.py", language="Python", text=text))]
        [(3, 'LOOP302')]
    """
    try:
        tree = ast.parse(file.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []  # the other analysers say of it that it cannot be read
    scopes = [node for node in ast.walk(tree) if isinstance(node, Scope)]
    return [one for scope in scopes for one in _Function(file, scope).findings()]


@dataclass
class _Function:
    """One function, or a module's top, as the rules see it.

    Attributes:
        file: The file.
        scope: The function; functions inside it have their own turn.
        lists: Names that are bound to a list, and to nothing else.
        texts: Names that are bound to a text.
    """

    file: SourceText
    scope: Scope
    lists: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)

    def findings(self) -> Iterator[Finding]:
        """Yield what the rules find."""
        others: set[str] = set()
        for node in _within(self.scope):
            for name, value in _bindings(node):
                is_list = isinstance(value, ast.List | ast.ListComp) or _called(value) in ("list", "sorted")
                (self.lists if is_list else others).add(name)
                if isinstance(value, ast.JoinedStr) or (
                    isinstance(value, ast.Constant) and isinstance(value.value, str)
                ):
                    self.texts.add(name)
        self.lists -= others
        for statement in self.scope.body:
            yield from self._visit(statement, 0)

    def _visit(self, node: ast.AST, depth: int) -> Iterator[Finding]:
        """Yield the findings in a node that stands in ``depth`` loops."""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            return
        if isinstance(node, Loop):
            if depth + 1 == _DEEP:
                yield self._finding(_NESTED, node, str(_DEEP))
            once = [] if isinstance(node, ast.While) else [node.target, node.iter]  # worked out before the first turn
            each = [node.test, *node.body] if isinstance(node, ast.While) else [*node.body]
            for part in [*once, *node.orelse]:
                yield from self._visit(part, depth)
            for part in each:
                yield from self._visit(part, depth + 1)
            return
        if depth:
            yield from self._in_loop(node)
        for child in ast.iter_child_nodes(node):
            yield from self._visit(child, depth)

    def _in_loop(self, node: ast.AST) -> Iterator[Finding]:
        if isinstance(node, ast.Call):
            waits = _waits(node)
            if waits:
                yield self._finding(_WAITS, node, waits)
            if _shifts(node):
                yield self._finding(_SHIFTS, node, f"{ast.unparse(node.func)[:80]}(0{', …' * (len(node.args) - 1)})")
        if isinstance(node, ast.Compare):
            for operator, right in zip(node.ops, node.comparators, strict=True):
                if isinstance(operator, ast.In | ast.NotIn) and isinstance(right, ast.Name) and right.id in self.lists:
                    yield self._finding(_SEARCHES, node, right.id)
        grown = node.target if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) else None
        if isinstance(node, ast.AugAssign) and isinstance(grown, ast.Name) and grown.id in self.texts:
            yield self._finding(_GROWS, node, grown.id)

    def _finding(self, rule: _Rule, node: ast.expr | ast.stmt, named: str) -> Finding:
        lines = self.file.text.split("\n")
        line = lines[node.lineno - 1] if node.lineno <= len(lines) else ""
        hushed = _NOQA.search(line)
        is_loop = isinstance(node, Loop)
        return Finding(
            path=self.file.path,
            line=node.lineno,
            end_line=node.lineno if is_loop else node.end_lineno or node.lineno,
            column=column_at(line, node.col_offset),
            concern="performance",
            severity=rule.severity,
            rule=rule.id,
            name=rule.name,
            message=rule.message.format(named),
            by=("loops",),
            confidence=rule.confidence,
            advice=rule.advice,
            suppressed=bool(hushed and (hushed[1] is None or hushed[1].upper() == rule.id)),
            code=line.strip()[:200],
        )


def _within(scope: Scope) -> Iterator[ast.AST]:
    """Yield the nodes of a function without those of the functions and classes inside it."""
    waiting: list[ast.AST] = list(scope.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)


def _bindings(node: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield each name that a statement binds, and to what."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from ((one.id, node.value) for one in ast.walk(target) if isinstance(one, ast.Name))
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id, node.value
    elif isinstance(node, ast.For | ast.AsyncFor):
        yield from ((one.id, None) for one in ast.walk(node.target) if isinstance(one, ast.Name))


def _called(node: ast.expr | None) -> str:
    """Return the plain name that is called, or ""."""
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""


def _waits(node: ast.Call) -> str:
    """Return what is waited for in a call, or ""."""
    function = node.func
    if isinstance(function, ast.Name):
        return f"{function.id}()" if function.id in _WAITING_CALLS else ""
    if not isinstance(function, ast.Attribute):
        return ""
    root: ast.expr = function
    while isinstance(root, ast.Attribute):
        root = root.value
    is_module = isinstance(root, ast.Name) and root.id in _WAITING_MODULES and function.attr.islower()
    if is_module or function.attr in _WAITING_METHODS or function.attr in _WAITING_CALLS:
        return f"{ast.unparse(function)[:80]}()"
    return ""


def _shifts(node: ast.Call) -> bool:
    """Return whether a call puts something in front of a list, or takes the first of it."""
    function, arguments = node.func, node.args
    first = arguments[0] if arguments else None
    is_zero = isinstance(first, ast.Constant) and first.value == 0 and first.value is not False
    if not isinstance(function, ast.Attribute) or not is_zero:
        return False
    return (function.attr == "insert" and len(arguments) == 2) or (function.attr == "pop" and len(arguments) == 1)
