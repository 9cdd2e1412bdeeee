"""The analysers that work offline: bandit and ruff for security, ruff, radon and our own rules for performance.

Comments that suppress a finding (`# nosec`, `# noqa`) do not hide it; it is reported as suppressed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from activities.code_review.laying_out import (
    AnalyserCrashedError,
    Laid,
    ask_program,
    finding_in,
    is_secret,
    laid_out,
    version_of,
)
from activities.code_review.loops import find_loops
from activities.code_review.records import (
    Analyser,
    Concern,
    Finding,
    Review,
    Severity,
    Snapshot,
    SourceText,
    Unread,
    in_order,
)
from activities.workbench.words import counted

_BANDIT_SURE = {"HIGH": 95, "MEDIUM": 75, "LOW": 50, "UNDEFINED": 50}
_RUFF_SURE = 85
_BOTH_SURE = 98
_COMPLEX_FROM = 11  # radon's rank C
_RUFF_PERFORMANCE = ("PERF", "ASYNC", "C4", "B019", "RUF015")
_GRAVE = frozenset({"S324", "S501", "S602", "S605", "S609", "S701", "S702"})  # as bandit grades their twins
_MOST_CRASHES = 20  # files; more of them, and it is ruff itself that does not work here
_SLIGHT = frozenset(
    {"S101", "S105", "S106", "S107", "S110", "S112", "S311", "S403", "S404", "S405", "S406", "S603", "S606", "S607"}
)

Raw = dict[str, Any]


@dataclass(frozen=True)
class Found:
    """What one analyser found.

    Attributes:
        analyser: Who.
        findings: What.
        broken: The files it could not parse.
    """

    analyser: Analyser
    findings: list[Finding]
    broken: frozenset[str] = frozenset()

    @property
    def claim(self) -> str:
        """What it found, in one sentence."""
        hushed = sum(one.suppressed for one in self.findings)
        by = f"{self.analyser.name} {self.analyser.version}".strip()
        unread = f"; could not parse {counted(len(self.broken), 'file')}" if self.broken else ""
        return f"{by} reports {counted(len(self.findings), 'finding')}, {hushed} suppressed in the source{unread}"


async def bandit(snapshot: Snapshot) -> Found:
    """Return what bandit finds in the snapshot's Python.

    Raises:
        CodeReviewError: It is missing or fails.
    """
    async with laid_out(snapshot) as laid:
        findings, broken = await _bandit(laid)
    return Found(_analyser("bandit", "security weaknesses"), findings, frozenset(broken))


async def ruff_security(snapshot: Snapshot) -> Found:
    """Return what ruff's `S` rules find in the snapshot's Python.

    Raises:
        CodeReviewError: It is missing or fails.
    """
    async with laid_out(snapshot) as laid:
        findings, broken = await _ruff(laid, ["S"], "security")
    return Found(_analyser("ruff", "security weaknesses (rules S)"), findings, frozenset(broken))


async def ruff_performance(snapshot: Snapshot) -> Found:
    """Return what ruff finds in the snapshot's Python that is slow, or blocks an event loop.

    Raises:
        CodeReviewError: It is missing or fails.
    """
    async with laid_out(snapshot) as laid:
        findings, broken = await _ruff(laid, _RUFF_PERFORMANCE, "performance")
    looked_for = f"slow or blocking code (rules {', '.join(_RUFF_PERFORMANCE)})"
    return Found(_analyser("ruff", looked_for), findings, frozenset(broken))


async def radon(snapshot: Snapshot) -> Found:
    """Return the functions in the snapshot's Python that radon finds too complex.

    Raises:
        CodeReviewError: It is missing or fails.
    """
    async with laid_out(snapshot) as laid:
        findings, broken = await _radon(laid)
    looked_for = f"functions of a cyclomatic complexity of {_COMPLEX_FROM} or more"
    return Found(_analyser("radon", looked_for), findings, frozenset(broken))


async def loops(snapshot: Snapshot) -> Found:
    """Return what our own rules find in the snapshot's Python."""
    findings = [one for file in snapshot.written_in("Python") for one in await asyncio.to_thread(find_loops, file)]
    return Found(Analyser(name="loops", version="", looked_for="work that grows faster than its input"), findings)


Analysis = Callable[[Snapshot], Awaitable[Found]]

ANALYSERS: Mapping[Concern, Mapping[str, Analysis]] = {
    "security": {"bandit": bandit, "ruff": ruff_security},
    "performance": {"ruff": ruff_performance, "radon": radon, "loops": loops},
}
"""What each reviewer uses, by name."""


def review_of(concern: Concern, snapshot: Snapshot, found: Sequence[Found]) -> Review:
    """Return what a reviewer makes of what the analysers found.

    What bandit and ruff find at one place is one finding, and surer. In tests an assertion is no finding, and
    nothing of performance is graver than low. Of a change only what stands in its lines counts.

    Args:
        concern: What the reviewer looks for.
        snapshot: The code under review.
        found: What was found, bandit's before ruff's.
    """
    tests = {file.path for file in snapshot.files if file.is_test}
    findings = _joined([finding for each in found for finding in each.findings])
    kept = [
        one.model_copy(update={"severity": "low"}) if concern == "performance" and one.path in tests else one
        for one in findings
        if not (one.path in tests and one.rule in ("B101", "S101"))
    ]
    broken = {path for each in found for path in each.broken}
    return _review(concern, snapshot, tuple(each.analyser for each in found), kept, broken)


def _review(
    concern: Concern,
    snapshot: Snapshot,
    analysers: tuple[Analyser, ...],
    findings: list[Finding],
    broken: set[str],
) -> Review:
    """Return a review: the findings in what is under review, and what could not be analysed."""
    files = {file.path: file for file in snapshot.files}
    covered = [one for one in findings if files[one.path].covers(one.line, one.end_line)]
    unread = (
        [Unread(reason="not to be parsed as Python", count=len(broken), examples=tuple(sorted(broken)[:5]))]
        if broken
        else []
    )
    others: dict[str, list[str]] = {}
    for file in snapshot.files:
        if file.language != "Python":
            others.setdefault(file.language, []).append(file.path)
    reader = next((f"only {one.name} read" for one in analysers if one.every_language), "these analysers do not read")
    for language, paths in sorted(others.items()):
        reason = f"written in {language}, which {reader}"
        unread.append(Unread(reason=reason, count=len(paths), examples=tuple(paths[:5])))
    return Review(
        concern=concern,
        analysers=analysers,
        files=len(snapshot.written_in("Python")) - len(broken),
        findings=in_order(covered),
        unread=tuple(unread),
    )


async def _bandit(laid: Laid) -> tuple[list[Finding], set[str]]:
    """Return bandit's findings, and the files it could not parse."""
    arguments = ["-q", "-f", "json", "-r", "."]
    heard = await ask_program("bandit", [*arguments, "--ignore-nosec"], laid) if laid.files else {"results": []}
    kept = heard
    if laid.mention("nosec"):
        kept = await ask_program("bandit", arguments, laid)
    shown = {_mark_of_bandit(raw) for raw in kept["results"]}
    findings = [
        finding_in(
            file,
            line=raw["line_number"],
            end_line=max(raw["line_range"], default=raw["line_number"]),
            offset=raw["col_offset"],
            concern="security",
            severity=_severity(raw["issue_severity"]),
            rule=raw["test_id"],
            name=raw["test_name"].replace("_", "-"),
            message=raw["issue_text"].partition(":")[0] if is_secret(raw["test_id"]) else raw["issue_text"],
            by=("bandit",),
            confidence=_BANDIT_SURE[raw["issue_confidence"]],
            help=raw["more_info"],
            cwe=raw.get("issue_cwe", {}).get("id"),
            suppressed=_mark_of_bandit(raw) not in shown,
        )
        for raw in heard["results"]
        if (file := laid.file(raw["filename"]))
    ]
    broken = {file.path for raw in heard.get("errors", ()) if (file := laid.file(raw["filename"]))}
    return findings, broken


def _mark_of_bandit(raw: Raw) -> tuple[Any, ...]:
    return raw["filename"], raw["line_number"], raw["col_offset"], raw["test_id"]


async def _ruff(laid: Laid, rules: Sequence[str], concern: Concern) -> tuple[list[Finding], set[str]]:
    """Return the findings of some of ruff's rules, and the files it could not parse."""
    arguments = ["check", "--isolated", "--no-cache", "--exit-zero", "--output-format", "json"]
    arguments += ["--config", "exclude = []", "--no-respect-gitignore", "--target-version", "py314"]
    arguments += ["--select", ",".join(rules)]
    heard, crashed = await _ask_ruff([*arguments, "--ignore-noqa"], laid)
    kept = heard
    if laid.mention("noqa"):
        kept, _ = await _ask_ruff(arguments, laid)
    shown = {_mark_of_ruff(raw) for raw in kept}
    placed = [(raw, file) for raw in heard if (file := laid.file(raw["filename"]))]
    findings = [
        finding_in(
            file,
            line=raw["location"]["row"],
            end_line=raw["end_location"]["row"],
            column=raw["location"]["column"],
            concern=concern,
            severity=_severity_of_ruff(raw["code"]),
            rule=raw["code"],
            name=raw.get("name") or raw["code"],
            message=raw["message"].replace("`", ""),
            by=("ruff",),
            confidence=_RUFF_SURE,
            help=raw["url"] or "",
            advice=((raw.get("fix") or {}).get("message") or "").replace("`", ""),
            suppressed=_mark_of_ruff(raw) not in shown,
        )
        for raw, file in placed
        if not _is_syntax(raw)
    ]
    return findings, crashed | {file.path for raw, file in placed if _is_syntax(raw)}


async def _ask_ruff(arguments: list[str], laid: Laid) -> tuple[list[Raw], set[str]]:
    """Return what ruff says of the files, and those that it crashes at, which are found by halving.

    Raises:
        AnalyserCrashedError: It crashes at more than a few.
    """
    heard: list[Raw] = []
    crashed: set[str] = set()
    parts: list[list[str]] = [["."]] if laid.files else []
    while parts:
        names = parts.pop()
        try:
            heard += await ask_program("ruff", [*arguments, *names], laid)
        except AnalyserCrashedError:
            among = [*laid.files] if names == ["."] else names
            half = len(among) // 2
            if half:
                parts += [among[half:], among[:half]]
            elif len(crashed) < _MOST_CRASHES:
                crashed.add(laid.files[among[0]].path)
            else:
                raise
    return heard, crashed


def _mark_of_ruff(raw: Raw) -> tuple[Any, ...]:
    return raw["filename"], raw["location"]["row"], raw["location"]["column"], raw["code"]


def _is_syntax(raw: Raw) -> bool:
    return raw["code"] in (None, "invalid-syntax")


async def _radon(laid: Laid) -> tuple[list[Finding], set[str]]:
    """Return the functions that are too complex, and the files radon could not parse."""
    heard = await ask_program("radon", ["cc", "-j", "."], laid) if laid.files else {}
    findings: list[Finding] = []
    broken: set[str] = set()
    for name, blocks in heard.items():
        file = laid.file(name)
        if file is None:
            continue
        if isinstance(blocks, dict):
            broken.add(file.path)
            continue
        findings += [
            _complex(file, block)
            for block in blocks
            if block["type"] != "class" and block["complexity"] >= _COMPLEX_FROM
        ]
    return findings, broken


def _complex(file: SourceText, block: Raw) -> Finding:
    much = block["complexity"]
    whole = f"{block['classname']}.{block['name']}" if block.get("classname") else block["name"]
    return finding_in(
        file,
        line=block["lineno"],
        end_line=block["endline"],
        offset=block["col_offset"],
        concern="performance",
        severity="high" if much > 40 else "medium" if much > 20 else "low",
        rule=f"CC-{block['rank']}",
        name="cyclomatic-complexity",
        message=f"{whole} has a cyclomatic complexity of {much} (rank {block['rank']})",
        by=("radon",),
        confidence=99,
        help="https://radon.readthedocs.io/en/latest/intro.html#cyclomatic-complexity",
        advice="Take it apart: every branch is a path that must be tested, and none can be made fast alone",
    )


def _joined(findings: list[Finding]) -> list[Finding]:
    """Return findings with those that bandit and ruff make at one place as one; bandit's comes first."""
    found: dict[tuple[str, int, str], Finding] = {}
    rest: list[Finding] = []
    for one in findings:
        twin = found.get((one.path, one.line, one.rule[1:]))
        if one.by == ("bandit",):
            found.setdefault((one.path, one.line, one.rule[1:]), one)
            if twin is not None:
                rest.append(one)  # twice on one line: both stand
        elif twin is None:
            rest.append(one)
        else:
            found[one.path, one.line, one.rule[1:]] = twin.model_copy(
                update={
                    "by": tuple(dict.fromkeys([*twin.by, *one.by])),
                    "confidence": max(twin.confidence, _BOTH_SURE),
                    "suppressed": twin.suppressed or one.suppressed,
                }
            )
    return [*found.values(), *rest]


def _severity(word: str) -> Severity:
    known: dict[str, Severity] = {"HIGH": "high", "MEDIUM": "medium"}
    return known.get(word, "low")


def _severity_of_ruff(code: str) -> Severity:
    if code.startswith(("PERF", "C4", "RUF")) or code in _SLIGHT:
        return "low"
    return "high" if code in _GRAVE else "medium"


def _analyser(name: str, looked_for: str) -> Analyser:
    return Analyser(name=name, version=version_of(name), looked_for=looked_for)
