"""Measure the safety scan: its recall, its false positives, its cost, and the fence around texts.

Each set of texts stands by itself, with its size and a Wilson interval. Two of the public sets were held out: the rules
were written without looking at `asb_ignore` and `notinject`. Where the public sets are not there (see
`benchmarks.corpora`), the table says so, and figures about them are left out.

`python -m benchmarks.scan [--corpora FOLDER]` prints the tables.
"""

import argparse
import asyncio
import math
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from baton.safety.detector import detect
from baton.safety.scan import Level, scan
from benchmarks.compare import Effort
from benchmarks.corpora import (
    FOLDER_VARIABLE,
    HELD_OUT,
    MARKED,
    Corpus,
    attacks,
    describe_missing,
    folder,
    own_corpora,
    public_corpora,
)
from benchmarks.fences import attack_texts, count
from benchmarks.hostile import hostile_texts
from benchmarks.report import Findings, show
from benchmarks.rig import Rig

KIB = 1024


@dataclass(frozen=True)
class Row:
    """The result of scanning a corpus.

    Attributes:
        corpus: The corpus.
        flagged: How many texts it flagged or rejected.
        rejected: How many it rejected.
        ms_per_kb: CPU milliseconds for each KiB, once the automata are warm.
    """

    corpus: Corpus
    flagged: int
    rejected: int
    ms_per_kb: float

    def cells(self) -> Sequence[str]:
        """Return the row of the table."""
        kind = ("attacks" if self.corpus.attacks else "harmless") + (", held out" * (self.corpus.name in HELD_OUT))
        size = len(self.corpus.texts)
        shares = [format_share(hits, size) for hits in (self.flagged, self.rejected)]
        return (f"{self.corpus.name}: {kind}", str(size), str(self.corpus.families), *shares, f"{self.ms_per_kb:.3f}")


def wilson(hits: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """Return the Wilson score interval of a share, of 95 % by default.

    Example:
        >>> [round(end, 4) for end in wilson(0, 2600)]
        [0.0, 0.0015]
    """
    share, square = hits / n, z * z
    middle = (share + square / (2 * n)) / (1 + square / n)
    reach = z * math.sqrt(share * (1 - share) / n + square / (4 * n * n)) / (1 + square / n)
    return max(0.0, middle - reach), min(1.0, middle + reach)


def format_share(hits: int, n: int) -> str:
    """Format a share with its interval.

    Example:
        >>> format_share(2, 339)
        '0.59% [0.16%, 2.13%]'
    """
    low, high = wilson(hits, n)
    return f"{hits / n:.2%} [{low:.2%}, {high:.2%}]"


async def scan_corpora(rig: Rig | None, effort: Effort) -> Findings:
    """Measure what the scan makes of every set: `scan_reject_fpr`, `scan_marked_recall`, `scan_ms_per_kb`."""
    path = folder()
    public = public_corpora(path)
    rows = [measure_corpus(corpus) for corpus in _limit_corpora([*public, *own_corpora()], effort)]
    findings = Findings("Safety scan, set by set", ("set", "n", "families", "flagged", "rejected", "ms/KB"))
    findings.rows.extend(row.cells() for row in rows)
    findings.values["scan_ms_per_kb"] = max(row.ms_per_kb for row in rows)
    harmless = [row for row in rows if not row.corpus.attacks]
    wrong, harmless_texts = sum(row.rejected for row in harmless), sum(len(row.corpus.texts) for row in harmless)
    findings.rows.append(
        ("all harmless sets together", str(harmless_texts), "", "", format_share(wrong, harmless_texts), ""),
    )
    if not public:
        findings.rows.append((describe_missing(path), "", "", "", "", ""))
        return findings
    findings.values["scan_reject_fpr"] = wrong / harmless_texts
    for row in rows:
        if row.corpus.name == MARKED and row.corpus.attacks:
            findings.values["scan_marked_recall"] = row.flagged / len(row.corpus.texts)
    return findings


async def scan_hostile(rig: Rig | None, effort: Effort) -> Findings:
    """Measure the hostile texts of 64 KiB, each the median of some rounds; the worst is `scan_worst_64k_ms`."""
    worst = worst_64k(1 if effort.quick else 3)
    findings = Findings("Safety scan, 64 KiB made to be slow, the ten slowest", ("made of", "CPU ms"))
    slowest = sorted(worst.items(), key=lambda item: -item[1])
    findings.rows.extend((name, f"{milliseconds:.1f}") for name, milliseconds in slowest[:10])
    findings.values["scan_worst_64k_ms"] = slowest[0][1]
    return findings


async def scan_structure(rig: Rig | None, effort: Effort) -> Findings:
    """Count the prompts in which an attack gets out of the fence, over all attacks, in every field: `fence_escapes`."""
    path = folder()
    texts = attacks(path)[: 20 if effort.quick else None]
    prompts, escaped = count(attack_texts(texts))
    findings = Findings("Attacks rendered into prompts", ("attacks", "prompts", "out of the fence"))
    findings.rows.append(
        (f"{len(texts)}{' (samples only)' * bool(describe_missing(path))}", str(prompts), str(escaped))
    )
    findings.values["fence_escapes"] = float(escaped)
    return findings


def measure_corpus(corpus: Corpus) -> Row:
    """Scan a corpus."""
    for text in corpus.texts[:200]:  # so that the automata are warm
        scan(text, detect)
    started = time.process_time()
    levels = [scan(text, detect).level for text in corpus.texts]
    seconds = time.process_time() - started
    size = sum(len(text.encode()) for text in corpus.texts) / KIB
    rejected = levels.count(Level.REJECT)
    return Row(corpus, rejected + levels.count(Level.FLAG), rejected, seconds * 1000 / size)


def worst_64k(rounds: int = 3) -> dict[str, float]:
    """Return the CPU milliseconds that each hostile text takes, the median of some rounds."""

    def measure(text: str) -> float:
        started = time.process_time()
        scan({"text": text}, detect)
        return (time.process_time() - started) * 1000

    hostile = hostile_texts()
    for text in hostile.values():
        measure(text)
    return {name: statistics.median(measure(text) for _ in range(rounds)) for name, text in hostile.items()}


def _limit_corpora(corpora: Sequence[Corpus], effort: Effort) -> Sequence[Corpus]:
    """Return the corpora, or only the beginning of each for a quick run."""
    if not effort.quick:
        return corpora
    return [Corpus(corpus.name, corpus.attacks, corpus.texts[:20], corpus.families) for corpus in corpora]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scan", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--corpora", help="the folder of the public sets (default: beside the project)")
    parser.add_argument("--quick", action="store_true", help="see that everything runs; the figures mean nothing")
    options = parser.parse_args()
    if options.corpora:
        os.environ[FOLDER_VARIABLE] = options.corpora
    console = Console(width=160)
    for measurement in (scan_corpora, scan_hostile, scan_structure):
        findings = asyncio.run(measurement(None, Effort(quick=options.quick)))
        show(findings, console)
        console.print(*(f"{name} = {value:.4g}" for name, value in findings.values.items()), sep="\n")


if __name__ == "__main__":
    main()
