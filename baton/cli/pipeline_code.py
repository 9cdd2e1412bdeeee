"""What the code of a pipeline is going to do: its steps in order, read from the source without running any of it.

Ways that the code may take are all there; which of them a run takes is not in the code. What cannot be read
either, such as steps in another file, is a remark.
"""

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from baton.errors import BatonError
from baton.wire.text import cut_line

MAX_LABEL = 60
"""The most characters of a label; the rest of a long expression is left out."""
_MAX_UNROLLED = 12
_TRANSPARENT = ("create_task", "ensure_future", "wait_for", "shield")
_AT_ONCE = ("gather", "wait", "as_completed")
_METHODS = ("stage", "map", "fan_out", "approve", "ask", "child", "sleep")
_LEADS = "which steps {} leads to, is decided while it runs"


@dataclass(frozen=True)
class Step:
    """A step: `kind` is `stage`, `map`, `approval`, `child`, `sleep`, `undo`, `outside` or `unknown`."""

    kind: str
    label: str
    detail: str = ""


@dataclass(frozen=True)
class End:
    """Where a way ends: `how` is `return`, `raise …`, `next round` or `leave the loop`."""

    how: str


@dataclass(frozen=True)
class Group:
    """Blocks that belong together: `kind` is `at once`, `branch`, `loop`, `try`, or `call` of a function."""

    kind: str
    title: str
    parts: Sequence[tuple[str, Sequence["Block"]]]


Block: TypeAlias = Step | End | Group


@dataclass(frozen=True)
class CodeOutline:
    """A pipeline, as its code has it.

    Attributes:
        name: Its name.
        blocks: What it does, in order.
        remarks: What cannot be known from the code, each once.
    """

    name: str
    blocks: Sequence[Block]
    remarks: Sequence[str]


def read_outline(file: Path, name: str | None = None) -> CodeOutline:
    """Return the outline of a pipeline in a file.

    Args:
        file: The file with its code.
        name: The pipeline; needed if the file has several.

    Raises:
        BatonError: The file is not Python code, has no such pipeline, or has several.
    """
    tree = _parse(file)
    found = _found(tree, file)
    matches = [(known, node) for known, node in found.items() if name in (None, known, node.name)]
    if len(matches) != 1:
        missing = f"has no pipeline {name!r}" if name else f"has {len(found)} pipelines"
        known = ", ".join(f"{file}:{known}" for known in found)
        raise BatonError(f"{str(file)!r} {missing}; name one of them: {known}")
    return _Reader(tree).outline(*matches[0])


def pipelines_in(file: Path) -> dict[str, str]:
    """Return the pipelines of a file by their types' names, each with its docstring's first paragraph.

    Raises:
        BatonError: The file is not Python code, or has no pipeline.
    """
    found = _found(_parse(file), file)
    return {
        name: " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split()) for name, node in found.items()
    }


def _parse(file: Path) -> ast.Module:
    try:
        return ast.parse(file.read_bytes(), str(file))
    except (OSError, SyntaxError, ValueError) as error:
        raise BatonError(f"{str(file)!r} cannot be read as Python code: {error}") from None


def _found(tree: ast.Module, file: Path) -> dict[str, ast.AsyncFunctionDef | ast.ClassDef]:
    found = dict(_pipelines(tree))
    if not found:
        raise BatonError(
            f"{str(file)!r} has no pipeline: expected an async function under @pipeline, or a class under "
            "@workflow.defn with a run method"
        )
    return found


def _pipelines(tree: ast.Module) -> Iterator[tuple[str, ast.AsyncFunctionDef | ast.ClassDef]]:
    """Yield the pipelines of a module by their types' names, in order."""
    for node in tree.body:
        if isinstance(node, ast.AsyncFunctionDef | ast.ClassDef):
            names = [_tail(_function(decorator)) for decorator in node.decorator_list]
            is_function = isinstance(node, ast.AsyncFunctionDef) and "pipeline" in names
            if is_function or (isinstance(node, ast.ClassDef) and "defn" in names and _run_method(node) is not None):
                yield _declared_name(node), node


def _run_method(node: ast.ClassDef) -> ast.AsyncFunctionDef | None:
    methods = [method for method in node.body if isinstance(method, ast.AsyncFunctionDef)]
    runs = [method for method in methods if "run" in map(_tail, map(_function, method.decorator_list))]
    return next(iter(runs), None)


def _function(call: ast.expr) -> ast.expr:
    """Return the function of a call, or an expression that is none."""
    return call.func if isinstance(call, ast.Call) else call


def _dotted(node: ast.expr | None) -> str:
    """Return a name such as `self.pipeline`; empty for any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (owner := _dotted(node.value)):
        return f"{owner}.{node.attr}"
    return ""


def _tail(node: ast.expr | None) -> str:
    """Return the last part of a name."""
    return node.attr if isinstance(node, ast.Attribute) else _dotted(node)


def shorten(text: str) -> str:
    """Return a text on one line, of the length of a label at most."""
    return cut_line(text, MAX_LABEL)


def _code(node: ast.expr) -> str:
    return shorten(ast.unparse(node))


def _text(node: ast.expr) -> str:
    """Return a text of the code; of an f-string with its expressions in braces, of anything else the code."""
    match node:
        case ast.Constant(value=str(value)):
            return shorten(value)
        case ast.JoinedStr(values=values):
            parts = [part.value if isinstance(part, ast.Constant) else _braced(part) for part in values]
            return shorten("".join(map(str, parts)))
        case _:
            return _code(node)


def _braced(part: ast.expr) -> str:
    return f"{{{ast.unparse(part.value)}}}" if isinstance(part, ast.FormattedValue) else ast.unparse(part)


_FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class _Scope:
    """What names mean where a block is read."""

    pipelines: set[str]
    attached: dict[str, str] = field(default_factory=dict)  # objects made of the pipeline: their class
    bindings: dict[str, str] = field(default_factory=dict)  # parameters and loop variables: the stages' names
    functions: dict[str, _FunctionNode] = field(default_factory=dict)
    callers: tuple[str, ...] = ()


class _Reader:
    """Reads one pipeline of a module."""

    def __init__(self, tree: ast.Module) -> None:
        self._functions = {node.name: node for node in tree.body if isinstance(node, _FunctionNode)}
        self._known = set(_top_level_names(tree.body))
        self._stages = {name: _declared_name(node) for name, node in self._functions.items()}
        self._remarks: dict[str, None] = {}

    def outline(self, name: str, node: ast.AsyncFunctionDef | ast.ClassDef) -> CodeOutline:
        if isinstance(node, ast.AsyncFunctionDef):
            scope, body = _Scope({node.args.args[0].arg} if node.args.args else set(), functions={}), node.body
        else:
            methods = {f"self.{method.name}": method for method in node.body if isinstance(method, _FunctionNode)}
            run = _run_method(node)
            scope, body = _Scope(_pipeline_attributes(node), functions=dict(methods)), run.body if run else []
            for inner in ast.walk(node):
                if isinstance(inner, ast.Assign):
                    self._assign(inner.targets, inner.value, scope)  # what __init__ attaches to it
        blocks = _without_return(self._sequence(body, scope))
        if any(isinstance(block, Group) and block.kind != "at once" for block in _all_blocks(blocks)):
            self._remark("which of several ways a run takes, and how often it repeats a loop, is decided while it runs")
        if not any(isinstance(block, Step) for block in _all_blocks(blocks)):
            self._remark("no step of the pipeline can be seen in this code")
        return CodeOutline(name, blocks, [*self._remarks])

    def _remark(self, text: str) -> None:
        self._remarks[text] = None

    def _sequence(self, statements: Iterable[ast.stmt], scope: _Scope) -> list[Block]:
        return [block for statement in statements for block in self._statement(statement, scope)]

    def _statement(self, node: ast.stmt, scope: _Scope) -> list[Block]:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                scope.functions[node.name] = node
                return []
            case ast.ClassDef():
                return []
            case ast.Assign(targets=targets, value=value) if _dotted(value) in scope.pipelines:
                return self._assign(targets, value, scope)
            case ast.Assign(targets=targets, value=value):
                return [*self._steps(value, scope), *self._assign(targets, value, scope)]
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                return [*self._steps(value, scope), *self._assign([target], value, scope)]
            case ast.Return(value=value):
                return [*self._steps(value, scope), End("return")]
            case ast.Raise(exc=error):
                return [*self._steps(error, scope), End(f"raise {_tail(_function(error)) if error else ''}".strip())]
            case ast.Continue():
                return [End("next round")]
            case ast.Break():
                return [End("leave the loop")]
            case ast.If(test=test, body=body, orelse=orelse):
                parts = [("yes", self._sequence(body, scope)), ("no", self._sequence(orelse, scope))]
                return [*self._steps(test, scope), *_group("branch", f"{_code(test)}?", parts)]
            case ast.While(test=test, body=body, orelse=orelse):
                looped = [*self._steps(test, scope), *self._sequence(body, scope)]
                return [*_group("loop", f"while {_code(test)}", [("", looped)]), *self._sequence(orelse, scope)]
            case (
                ast.For(target=target, iter=items, body=body, orelse=orelse)
                | ast.AsyncFor(target=target, iter=items, body=body, orelse=orelse)
            ):
                return [*self._loop(target, items, body, scope), *self._sequence(orelse, scope)]
            case ast.Try() | ast.TryStar():
                return self._try(node, scope)
            case ast.With(items=contexts, body=body) | ast.AsyncWith(items=contexts, body=body):
                return self._with(contexts, body, scope)
            case ast.Match(subject=subject, cases=cases):
                parts = [(shorten(ast.unparse(case.pattern)), self._sequence(case.body, scope)) for case in cases]
                return [*self._steps(subject, scope), *_group("branch", f"{_code(subject)} is", parts)]
            case _:
                return [block for child in ast.iter_child_nodes(node) for block in self._steps(child, scope)]

    def _assign(self, targets: Sequence[ast.expr], value: ast.expr, scope: _Scope) -> list[Block]:
        """Note what names stand for the pipeline, or for an object that is attached to it."""
        for name in filter(None, map(_dotted, targets)):
            if _dotted(value) in scope.pipelines:
                scope.pipelines.add(name)
            elif attached := self._attaches(value, scope):
                scope.attached[name] = attached
        return []

    def _attaches(self, value: ast.expr, scope: _Scope) -> str:
        """Return the class of an object that is made of the pipeline, empty if the value is none."""
        if not isinstance(value, ast.Call) or self._find_function(value, scope) is not None:
            return ""
        makes = any(_dotted(arg) in scope.pipelines or self._attaches(arg, scope) for arg in value.args)
        return _tail(value.func) if makes else ""

    def _loop(self, target: ast.expr, items: ast.expr, body: list[ast.stmt], scope: _Scope) -> list[Block]:
        before = self._steps(items, scope)
        names = [self._known_name(item) for item in items.elts] if isinstance(items, ast.Tuple | ast.List) else []
        if isinstance(target, ast.Name) and names and all(names) and len(names) <= _MAX_UNROLLED:
            rounds: list[Block] = []
            for name in names:
                rounds += self._sequence(body, replace(scope, bindings={**scope.bindings, target.id: name}))
            if not any(isinstance(block, End) for block in _all_blocks(rounds)):
                return [*before, *rounds]
        return [*before, *_group("loop", f"for {_code(target)} in {_code(items)}", [("", self._sequence(body, scope))])]

    def _try(self, node: ast.Try | ast.TryStar, scope: _Scope) -> list[Block]:
        body = [*self._sequence(node.body, scope), *self._sequence(node.orelse, scope)]
        handlers = [
            (f"on {_code(handler.type) if handler.type else 'any error'}", self._sequence(handler.body, scope))
            for handler in node.handlers
        ]
        last = self._sequence(node.finalbody, scope)
        return [*_group("try", "try", [("", body), *handlers]), *last] if body and handlers else [*body, *last]

    def _with(self, contexts: Sequence[ast.withitem], body: list[ast.stmt], scope: _Scope) -> list[Block]:
        blocks: list[Block] = []
        at_once = False
        for context in contexts:
            blocks += self._steps(context.context_expr, scope)
            at_once = at_once or _tail(_function(context.context_expr)) == "TaskGroup"
            if context.optional_vars is not None:
                self._assign([context.optional_vars], context.context_expr, scope)
        inner = self._sequence(body, scope)
        if at_once:
            return [*blocks, *_group("at once", "at once", [("", [block]) for block in inner])]
        return [*blocks, *inner]

    def _steps(self, node: ast.AST | None, scope: _Scope, *, awaited: bool = False) -> list[Block]:
        """Return the steps in an expression, in the order in which they run."""
        match node:
            case None:
                return []
            case ast.Name() | ast.Attribute():
                return self._mention(node, scope)
            case ast.Lambda(body=body):
                if any(self._leads_away(inner, scope) for inner in ast.walk(body)):
                    self._remark(_LEADS.format(_code(node)))
                return []
            case ast.Await(value=value):
                return self._steps(value, scope, awaited=True)
            case ast.Call():
                return self._call(node, scope, awaited=awaited)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                parts = [("yes", self._steps(body, scope)), ("no", self._steps(orelse, scope))]
                return [*self._steps(test, scope), *_group("branch", f"{_code(test)}?", parts)]
            case ast.BoolOp(op=op, values=[first, *rest]):
                further = [block for value in rest for block in self._steps(value, scope)]
                yes, no = ("yes", "no") if isinstance(op, ast.And) else ("no", "yes")
                return [*self._steps(first, scope), *_group("branch", f"{_code(first)}?", [(yes, further), (no, [])])]
            case ast.ListComp(elt=element) | ast.SetComp(elt=element) | ast.GeneratorExp(elt=element):
                return self._comprehension(node.generators, [element], scope)
            case ast.DictComp(key=key, value=value):
                return self._comprehension(node.generators, [key, value], scope)
            case _:
                return [block for child in ast.iter_child_nodes(node) for block in self._steps(child, scope)]

    def _mention(self, node: ast.Name | ast.Attribute, scope: _Scope) -> list[Block]:
        """Remark that steps may be taken through a name that is only mentioned: the pipeline, or a way to it."""
        if self._leads_away(node, scope):
            self._remark(_LEADS.format(_code(node)))
        return self._steps(node.value, scope) if isinstance(node, ast.Attribute) and not _dotted(node) else []

    def _leads_away(self, node: ast.AST, scope: _Scope) -> bool:
        name = _dotted(node) if isinstance(node, ast.expr) else ""
        owner, _, method = name.rpartition(".")
        holds = any(known == name or known.startswith(f"{name}.") for known in scope.pipelines)
        return bool(name) and (holds or name in scope.functions or (owner in scope.pipelines and method in _METHODS))

    def _comprehension(
        self, generators: Sequence[ast.comprehension], elements: Sequence[ast.expr], scope: _Scope, how: str = "for"
    ) -> list[Block]:
        first = generators[0]
        body = [block for element in elements for block in self._steps(element, scope)]
        title = f"{how} {_code(first.target)} in {_code(first.iter)}"
        return [*self._steps(first.iter, scope), *_group("loop", title, [("", body)])]

    def _call(self, call: ast.Call, scope: _Scope, *, awaited: bool) -> list[Block]:
        owner = _dotted(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        tail = _tail(call.func)
        if tail in _AT_ONCE and owner in ("asyncio", "workflow", ""):
            return self._at_once(call, scope)
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        passed = [value for value in given if _dotted(value) in scope.pipelines]
        before = [block for value in given if value not in passed for block in self._steps(value, scope)]
        if owner in scope.pipelines:
            return [*before, *self._step(tail, call, scope)]
        if owner in scope.attached:
            return [*before, *self._attached_step(scope.attached[owner], tail, call, scope, awaited=awaited)]
        if (function := self._find_function(call, scope)) is not None:
            return [*before, *self._inline(function, call, scope)]
        if awaited and tail not in _TRANSPARENT and passed:
            self._remark(f"the steps of {_dotted(call.func) or tail}() are in another file")
            return [*before, Step("unknown", f"{_dotted(call.func) or tail}(…)", "in another file")]
        if (passed and not self._attaches(call, scope)) or self._attaches(call.func, scope):  # getattr(p, …)(…)
            self._remark(_LEADS.format(_code(call)))
        if isinstance(call.func, ast.Attribute):
            if attached := self._attaches(call.func.value, scope):  # Outside(…).hand_off(…)
                return [*before, *self._attached_step(attached, tail, call, scope, awaited=awaited)]
            return [*self._steps(call.func.value, scope), *before]
        return before

    def _at_once(self, call: ast.Call, scope: _Scope) -> list[Block]:
        parts: list[tuple[str, list[Block]]] = []
        for arg in call.args:
            value = arg.value if isinstance(arg, ast.Starred) else arg
            if isinstance(value, ast.ListComp | ast.GeneratorExp):
                parts.append(("", self._comprehension(value.generators, [value.elt], scope, "at once for each")))
                continue
            parts += [("", self._steps(item, scope)) for item in getattr(value, "elts", [value])]
            if isinstance(arg, ast.Starred) and not parts[-1][1]:
                self._remark(f"what *{_code(value)} runs at once is decided while it runs")
        return _group("at once", "at once", parts)

    def _find_function(self, call: ast.Call, scope: _Scope) -> _FunctionNode | None:
        """Return the function of this file that a call runs with the pipeline."""
        name = _dotted(call.func)
        if name in scope.functions:
            return scope.functions[name]
        takes = any(_dotted(value) in scope.pipelines or _dotted(value) in scope.attached for value in call.args)
        return self._functions.get(name) if takes else None

    def _inline(self, function: _FunctionNode, call: ast.Call, scope: _Scope) -> list[Block]:
        name = _dotted(call.func)
        if name in scope.callers:
            self._remark(f"{name}() calls itself; how often is decided while it runs")
            return [Step("unknown", f"{name}(…)", "calls itself")]
        names = [parameter.arg for parameter in (*function.args.posonlyargs, *function.args.args)]
        if name.startswith("self."):
            names = names[1:]
        given = dict(zip(names, call.args, strict=False))
        given |= {word.arg: word.value for word in call.keywords if word.arg}
        inner = _Scope({*scope.pipelines}, {**scope.attached}, {**scope.bindings}, {**scope.functions}, scope.callers)
        inner.callers = (*scope.callers, name)
        for parameter, value in given.items():
            inner.bindings[parameter] = self._known_name(value, scope)
            if _dotted(value) in scope.pipelines:
                inner.pipelines.add(parameter)
            if attached := scope.attached.get(_dotted(value)):
                inner.attached[parameter] = attached
        blocks = _without_return(self._sequence(function.body, inner))
        returns = any(block == End("return") for block in _all_blocks(blocks))
        return _group("call", f"{function.name}()", [("", blocks)]) if returns else blocks

    def _known_name(self, node: ast.expr, scope: _Scope | None = None) -> str:
        """Return the name of the stage that an expression is, empty if the code does not say."""
        name = _dotted(node)
        if scope is not None and name in scope.bindings:
            return scope.bindings[name]
        if name.partition(".")[0] not in self._known:
            return ""
        return self._stages.get(name) or name.rpartition(".")[2] if name.count(".") <= 1 else name

    def _stage_label(self, node: ast.expr, scope: _Scope) -> str:
        if name := self._known_name(node, scope):
            return shorten(name)
        self._remark(f"which stage {_code(node)!r} is, is decided while it runs")
        return _code(node)

    def _step(self, method: str, call: ast.Call, scope: _Scope) -> list[Block]:
        """Return the step of a method of the pipeline; other methods are none."""
        words = {word.arg: word.value for word in call.keywords}
        first = call.args[0] if call.args else next(iter(words.values()), None)
        if first is None:
            return []
        name = _text(words["name"]) if "name" in words else ""
        match method:
            case "stage":
                stage = self._stage_label(first, scope)
                return [Step("stage", name or stage, f"stage {stage}" if name else "")]
            case "map":
                stage = self._stage_label(first, scope)
                items = words.get("items", call.args[1] if len(call.args) > 1 else None)
                limit = f", {_code(words['at_most'])} at once" if "at_most" in words else ""
                return [Step("map", name or stage, f"for each of {_code(items) if items else '…'}{limit}")]
            case "fan_out":
                parts = []
                for arg in call.args:
                    value = arg.value if isinstance(arg, ast.Starred) else arg
                    label = self._stage_label(value, scope)
                    parts.append(("", [Step("stage", f"*{label}" if arg is not value else label)]))
                return _group("at once", "fan out", parts, always=True)
            case "approve":
                within = f"within {_code(words['within'])}" if "within" in words else ""
                return [Step("approval", _text(first), within)]
            case "ask":
                return [Step("approval", "a handoff that waits", "for a person")]
            case "child":
                child = _text(first) if isinstance(first, ast.Constant) else _dotted(first).removesuffix(".run")
                return [Step("child", name or child or _code(first), f"pipeline {child}" if name else "")]
            case "sleep":
                return [Step("sleep", name or "sleep", _code(first))]
            case _:
                return []

    def _attached_step(self, kind: str, method: str, call: ast.Call, scope: _Scope, *, awaited: bool) -> list[Block]:
        if kind == "Compensations":
            return [Step("undo", self._stage_label(call.args[0], scope), "if later work fails")] if call.args else []
        about = next((_text(arg) for arg in call.args if isinstance(arg, ast.Constant)), "")
        return [Step("outside", method.replace("_", " "), about or kind)] if awaited else []


def _group(kind: str, title: str, parts: Sequence[tuple[str, Sequence[Block]]], *, always: bool = False) -> list[Block]:
    """Return a group as blocks: none without content, and of what runs at once a single part by itself."""
    filled = [part for part in parts if part[1]]
    if not filled:
        return []
    if kind == "at once":
        return [Group(kind, title, filled)] if len(filled) > 1 or always else [*filled[0][1]]
    return [Group(kind, title, parts)]


def _without_return(blocks: list[Block]) -> list[Block]:
    """Return blocks without the return at their end, which is where they end anyway."""
    return blocks[:-1] if blocks and blocks[-1] == End("return") else blocks


def _all_blocks(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield blocks and those in them."""
    for block in blocks:
        yield block
        if isinstance(block, Group):
            for _, inner in block.parts:
                yield from _all_blocks(inner)


def _pipeline_attributes(node: ast.ClassDef) -> set[str]:
    """Return the attributes of a workflow class that hold its pipeline."""
    return {
        name
        for inner in ast.walk(node)
        if isinstance(inner, ast.Assign) and _tail(_function(inner.value)) == "Pipeline"
        for name in filter(None, map(_dotted, inner.targets))
    } or {"self.pipeline"}


def _declared_name(node: _FunctionNode | ast.ClassDef) -> str:
    """Return the name that the decorator of a stage or pipeline gives it, or its own."""
    for decorator in node.decorator_list:
        for word in decorator.keywords if isinstance(decorator, ast.Call) else []:
            if word.arg == "name" and isinstance(word.value, ast.Constant):
                return str(word.value.value)
    return node.name


def _top_level_names(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Yield the names that a module defines, also inside of its ifs and withs."""
    for node in body:
        match node:
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from ((alias.asname or alias.name).partition(".")[0] for alias in names)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                for target in targets:
                    yield from (inner.id for inner in ast.walk(target) if isinstance(inner, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.With(body=inner) | ast.If(body=inner) | ast.Try(body=inner):
                yield from _top_level_names(inner)
