"""Pictures of a pipeline's outline: Mermaid, and SVG with a layout of its own, both without any program or font."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from baton.cli.pipeline_code import Block, CodeOutline, End, Group, Step

_Exit = tuple[str, str, str]  # a node, the label of the edge that leaves it, and the edge's style

_SHAPES = {
    "stage": ("[", "]"),
    "map": ("[[", "]]"),
    "approval": ("{{", "}}"),
    "child": ("[[", "]]"),
    "sleep": ("([", "])"),
    "undo": ("[", "]"),
    "outside": ("[/", "/]"),
    "unknown": (">", "]"),
}
_CLASSES = (
    "classDef approval fill:#fff3cd,stroke:#b58900",
    "classDef undo stroke-dasharray:4 3",
    "classDef unknown fill:#f8d7da,stroke:#b02a37",
    "classDef remark fill:#f8f9fa,stroke:#adb5bd,color:#495057",
)


def mermaid(outline: CodeOutline) -> str:
    """Return an outline as a Mermaid flow chart."""
    return _Mermaid().chart(outline)


class _Mermaid:
    """Writes one chart."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._count = 0
        self._returns: list[_Exit] = []
        self._rounds: list[tuple[list[_Exit], list[_Exit]]] = []  # of each open loop: to its next round, and out of it

    def chart(self, outline: CodeOutline) -> str:
        self._node("start", ("([", "])"), outline.name)
        exits = self._sequence(outline.blocks, [("start", "", "")])
        self._node("result", ("([", "])"), "result")
        self._connect([*exits, *self._returns], "result")
        for number, remark in enumerate(outline.remarks, 1):
            self._node(f"remark{number}", ("[", "]"), f"Not known: {remark}", "remark")
        return "\n".join(["flowchart TD", *(f"  {line}" for line in (*self._lines, *_CLASSES))]) + "\n"

    def _new(self) -> str:
        self._count += 1
        return f"n{self._count}"

    def _node(self, name: str, shape: tuple[str, str], text: str, style: str = "") -> None:
        self._lines.append(f'{name}{shape[0]}"{_mermaid_text(text)}"{shape[1]}{f":::{style}" if style else ""}')

    def _connect(self, exits: Iterable[_Exit], to: str) -> None:
        for node, label, style in exits:
            arrow = "-.->" if style == "dotted" else "-->"
            self._lines.append(f"{node} {arrow}{f'|{chr(34)}{_mermaid_text(label)}{chr(34)}|' if label else ''} {to}")

    def _sequence(self, blocks: Sequence[Block], entries: list[_Exit]) -> list[_Exit]:
        for block in blocks:
            entries = self._block(block, entries)
        return entries

    def _block(self, block: Block, entries: list[_Exit]) -> list[_Exit]:
        match block:
            case Step():
                return self._step(block, entries)
            case End():
                return self._end(block, entries)
            case Group(kind="loop"):
                return self._loop(block, entries)
            case Group(kind="try"):
                return self._try(block, entries)
            case Group(kind="call"):
                outer, self._returns = self._returns, []
                returned = [*self._sequence(block.parts[0][1], entries), *self._returns]
                self._returns = outer
                return returned
            case _:
                head = self._head(("{", "}") if block.kind == "branch" else ("([", "])"), block.title, entries)
                exits = [self._sequence(inner, [(head, label, "")]) for label, inner in block.parts]
                return [exit for part in exits for exit in part]

    def _head(self, shape: tuple[str, str], title: str, entries: list[_Exit]) -> str:
        name = self._new()
        self._node(name, shape, title)
        self._connect(entries, name)
        return name

    def _step(self, step: Step, entries: list[_Exit]) -> list[_Exit]:
        name = self._new()
        text = f"{_prefix(step)}{step.label}" + (f"\n{step.detail}" if step.detail else "")
        self._node(name, _SHAPES[step.kind], text, step.kind if step.kind in ("approval", "undo", "unknown") else "")
        self._connect(entries, name)
        return [(name, "", "")]

    def _end(self, end: End, entries: list[_Exit]) -> list[_Exit]:
        if end.how == "return":
            self._returns += entries
        elif end.how in ("next round", "leave the loop") and self._rounds:
            again, out = self._rounds[-1]
            (again if end.how == "next round" else out).extend(entries)
        else:
            self._head(("([", "])"), end.how, entries)
        return []

    def _loop(self, loop: Group, entries: list[_Exit]) -> list[_Exit]:
        head = self._head(("[/", "\\]"), loop.title, entries)
        again: list[_Exit] = []
        out: list[_Exit] = [] if loop.title == "while True" else [(head, "done", "")]
        self._rounds.append((again, out))
        again += self._sequence(loop.parts[0][1], [(head, "each", "")])
        self._rounds.pop()
        self._connect([(node, label or "again", style) for node, label, style in again], head)
        return out

    def _try(self, group: Group, entries: list[_Exit]) -> list[_Exit]:
        head = self._head(("([", "])"), group.title, entries)
        (_, body), *handlers = group.parts
        exits = self._sequence(body, [(head, "", "")])
        for label, inner in handlers:
            exits = [*exits, *self._sequence(inner, [(head, label, "dotted")])]
        return exits


def _prefix(step: Step) -> str:
    return {"approval": "approve: ", "child": "child: ", "undo": "undo: "}.get(step.kind, "")


_MERMAID_CODES = {"\n": "<br/>", "&": "#amp;", '"': "#quot;", "<": "#lt;", ">": "#gt;"} | {
    character: f"#{ord(character)};" for character in "#`|;"
}


def _mermaid_text(text: str) -> str:
    """Return a text that cannot end a quoted label, nor be taken for markup."""
    return "".join(_MERMAID_CODES.get(character, character) for character in text)


_CHARACTER, _LINE, _PADDING, _GAP, _CAPTION = 7.2, 16.0, 12.0, 26.0, 22.0
_FONT = "font-family='system-ui, sans-serif' font-size='12'"
_FILLS = {"approval": "#fff3cd", "unknown": "#f8d7da", "child": "#e7f1ff", "map": "#e9f7ef", "outside": "#f3e8fd"}


def svg(outline: CodeOutline) -> str:
    """Return an outline as an SVG: steps below each other, ways and what runs at once side by side in frames."""
    flow = _measure_sequence([Step("sleep", outline.name), *outline.blocks, Step("sleep", "result")])
    remarks = [f"Not known: {remark}" for remark in outline.remarks]
    width = max(flow.width, *(len(remark) * _CHARACTER for remark in remarks), 0.0) + 2 * _PADDING
    height = flow.height + 2 * _PADDING + len(remarks) * _LINE
    parts = [*_draw_sequence(flow, width / 2, _PADDING)]
    for number, remark in enumerate(remarks, 1):
        y = flow.height + 1.5 * _PADDING + number * _LINE
        parts.append(_text(_PADDING, y, remark, "fill='#6c757d' text-anchor='start'"))
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width:.0f} {height:.0f}' width='{width:.0f}' "
        f"height='{height:.0f}' role='img' aria-label='{_attribute(f'Pipeline {outline.name}')}' {_FONT}>\n"
        "<defs><marker id='arrow' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='8' markerHeight='8' orient='auto'>"
        "<path d='M0,0 L8,4 L0,8 z' fill='#495057'/></marker></defs>\n"
        f"<rect width='100%' height='100%' fill='white'/>\n{chr(10).join(parts)}\n</svg>\n"
    )


@dataclass(frozen=True)
class _Box:
    """A block with its size, and with the columns of a group."""

    block: Block
    width: float
    height: float
    columns: Sequence[tuple[str, "_Column"]] = ()


@dataclass(frozen=True)
class _Column:
    """Boxes below each other."""

    boxes: Sequence[_Box]
    width: float
    height: float


def _measure_sequence(blocks: Sequence[Block]) -> _Column:
    boxes = [_measure(block) for block in blocks]
    height = sum(box.height for box in boxes) + _GAP * max(len(boxes) - 1, 0)
    return _Column(boxes, max((box.width for box in boxes), default=40.0), height)


def _measure(block: Block) -> _Box:
    match block:
        case Step():
            lines = [f"{_prefix(block)}{block.label}", block.detail]
            width = max(len(line) for line in lines) * _CHARACTER + 2 * _PADDING
            return _Box(block, max(width, 100.0), _LINE * (2 if block.detail else 1) + _PADDING)
        case End():
            return _Box(block, len(block.how) * _CHARACTER + 2 * _PADDING, _LINE + _PADDING / 2)
        case Group():
            columns = [(label, _measure_sequence(inner)) for label, inner in block.parts]
            widths = [max(column.width, len(label) * _CHARACTER) for label, column in columns]
            width = max(sum(widths) + _GAP * (len(widths) - 1), len(block.title) * _CHARACTER) + 2 * _PADDING
            labels = _LINE if any(label for label, _ in columns) else 0.0
            height = max(column.height for _, column in columns) + _CAPTION + labels + _PADDING
            return _Box(block, width, height, columns)


def _draw_sequence(column: _Column, center: float, top: float) -> list[str]:
    parts: list[str] = []
    previous: _Box | None = None
    for box in column.boxes:
        if previous is not None:
            if not isinstance(previous.block, End):
                parts.append(
                    f"<line x1='{center:.1f}' y1='{top:.1f}' x2='{center:.1f}' y2='{top + _GAP:.1f}' stroke='#495057' "
                    "marker-end='url(#arrow)'/>"
                )
            top += _GAP
        parts += _draw(box, center, top)
        top += box.height
        previous = box
    return parts


def _draw(box: _Box, center: float, top: float) -> list[str]:
    block, left = box.block, center - box.width / 2
    match block:
        case Step():
            round_corners = box.height / 2 if block.kind == "sleep" else 4
            dash = " stroke-dasharray='4 3'" if block.kind == "undo" else ""
            style = f"fill='{_FILLS.get(block.kind, '#ffffff')}' stroke='#495057' rx='{round_corners:.0f}'{dash}"
            texts = [_text(center, top + _LINE + 1, f"{_prefix(block)}{block.label}", "font-weight='600'")]
            if block.detail:
                texts.append(_text(center, top + 2 * _LINE + 1, block.detail, "fill='#495057'"))
            return [_rectangle(left, top, box.width, box.height, style), *texts]
        case End():
            style = f"fill='#f8f9fa' stroke='#adb5bd' rx='{box.height / 2:.0f}'"
            return [_rectangle(left, top, box.width, box.height, style), _text(center, top + _LINE, block.how)]
        case Group():
            parts = [_rectangle(left, top, box.width, box.height, "fill='none' stroke='#adb5bd' rx='6'")]
            parts.append(_text(left + _PADDING, top + _LINE, block.title, "fill='#6c757d' text-anchor='start'"))
            widths = [max(column.width, len(label) * _CHARACTER) for label, column in box.columns]
            x = center - (sum(widths) + _GAP * (len(widths) - 1)) / 2
            y = top + _CAPTION
            labeled = any(label for label, _ in box.columns)
            for width, (label, column) in zip(widths, box.columns, strict=True):
                if labeled:
                    parts.append(_text(x + width / 2, y + _LINE - 5, label, "fill='#6c757d' font-style='italic'"))
                parts += _draw_sequence(column, x + width / 2, y + (_LINE if labeled else 0.0))
                x += width + _GAP
            return parts


def _rectangle(x: float, y: float, width: float, height: float, style: str) -> str:
    return f"<rect x='{x:.1f}' y='{y:.1f}' width='{width:.1f}' height='{height:.1f}' {style}/>"


def _text(x: float, y: float, text: str, style: str = "") -> str:
    anchor = "" if "text-anchor" in style else "text-anchor='middle' "
    return f"<text x='{x:.1f}' y='{y:.1f}' {anchor}{style}>{escape(_printable(text))}</text>"


def _attribute(text: str) -> str:
    return escape(_printable(text), {"'": "&#39;", '"': "&quot;"})


def _printable(text: str) -> str:
    """Return a text without what XML cannot hold."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)
