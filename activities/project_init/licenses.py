"""Which licences a project names: by its licence texts, its manifests, and the SPDX tags in its files.

A text is recognised by sentences that only that licence has, after white space, case and punctuation are
evened out; a text that is none of them is reported as unrecognised, never guessed.
"""

import re
from collections.abc import Iterable

from activities.project_init.files import SourceTree, as_text
from activities.project_init.languages import kind_of, language_of
from activities.project_init.listing import Progress
from activities.project_init.parsing import line_of
from activities.project_init.records import Evidence, License, Manifest
from activities.project_init.roles import role_of

UNRECOGNISED = "LicenseRef-unrecognised"
_LICENSE_FILE = re.compile(
    r"(?i:(un)?licen[cs]e([-_.][\w.-]*)?|copying([-_.][\w.-]*)?|copyright([-_.][\w.-]*)?)|LICENSES/[\w.-]+"
)
_TEXT_BYTES = 64 * 1024
_HEAD_BYTES = 2048
_HEADER = re.compile(r"SPDX-License-Identifier:\s*([\w.+-]+(?:\s+(?:AND|OR|WITH)\s+[\w.+-]+)*)")

# The row whose every phrase occurs, and whose first phrase occurs earliest, names the licence: several texts name
# other licences further down. Of rows that begin with the same phrase the more specific stand first.
_PHRASES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("AGPL-3.0", ("gnu affero general public license", "version 3")),
    ("LGPL-3.0", ("gnu lesser general public license", "version 3 29 june 2007")),
    ("LGPL-2.1", ("gnu lesser general public license", "version 2 1 february 1999")),
    ("LGPL-2.0", ("gnu library general public license", "version 2 june 1991")),
    ("GPL-3.0", ("gnu general public license", "version 3 29 june 2007")),
    ("GPL-2.0", ("gnu general public license", "version 2 june 1991")),
    ("Apache-2.0", ("apache license", "version 2 0 january 2004")),
    ("Apache-2.0", ("licensed under the apache license version 2 0",)),
    ("MPL-2.0", ("mozilla public license version 2 0",)),
    ("EPL-2.0", ("eclipse public license v 2 0",)),
    ("EUPL-1.2", ("european union public licence v 1 2",)),
    ("CC0-1.0", ("cc0 1 0 universal",)),
    ("CC-BY-SA-4.0", ("attribution sharealike 4 0 international",)),
    ("CC-BY-NC-4.0", ("attribution noncommercial 4 0 international",)),
    ("CC-BY-4.0", ("attribution 4 0 international",)),
    ("Unlicense", ("this is free and unencumbered software released into the public domain",)),
    ("BSL-1.0", ("boost software license version 1 0",)),
    ("BUSL-1.1", ("business source license 1 1",)),
    ("Elastic-2.0", ("elastic license 2 0",)),
    ("Artistic-2.0", ("the artistic license 2 0",)),
    ("PSF-2.0", ("python software foundation license version 2",)),
    ("WTFPL", ("do what the fuck you want to public license",)),
    ("Zlib", ("this software is provided as is without any express or implied warranty", "altered source versions")),
    ("OFL-1.1", ("sil open font license version 1 1",)),
    (
        "MIT",
        (
            "permission is hereby granted free of charge to any person obtaining a copy",
            "the above copyright notice and this permission notice",
        ),
    ),
    ("MIT-0", ("permission is hereby granted free of charge to any person obtaining a copy",)),
    ("ISC", ("permission to use copy modify and or distribute this software", "the above copyright notice")),
    (
        "curl",
        (
            "permission to use copy modify and distribute this software for any purpose with or without fee",
            "except as contained in this notice the name of a copyright holder",
        ),
    ),
    ("ISC", ("permission to use copy modify and distribute this software for any purpose with or without fee",)),
    ("0BSD", ("permission to use copy modify and or distribute this software for any purpose",)),
    (
        "BSD-4-Clause",
        ("redistribution and use in source and binary forms", "all advertising materials mentioning features"),
    ),
    (
        "BSD-3-Clause",
        ("redistribution and use in source and binary forms", "endorse or promote products derived from"),
    ),
    ("BSD-2-Clause", ("redistribution and use in source and binary forms",)),
)


def recognise(text: str) -> str:
    """Return the SPDX identifier of a licence text, or `LicenseRef-unrecognised`.

    Whether a GNU licence is taken "or later" stands in a project's notices, not in the licence text, so the
    bare version is returned. This reads words, not law: changes inside a known text are not noticed.

    Example:
        >>> recognise("Mozilla Public License, version 2.0"), recognise("All rights reserved.")
        ('MPL-2.0', 'LicenseRef-unrecognised')
    """
    words = " ".join(re.findall(r"[a-z0-9]+", text.lower()))
    found = [
        (words.index(phrases[0]), row)
        for row, (_, phrases) in enumerate(_PHRASES)
        if all(phrase in words for phrase in phrases)
    ]
    return _PHRASES[min(found)[1]][0] if found else UNRECOGNISED


def names_license(declared: str, spdx: str) -> bool:
    """Return whether the author's words for a licence name the one with this SPDX identifier.

    Example:
        >>> names_license("Apache License, Version 2.0", "Apache-2.0"), names_license("LGPL-3.0", "GPL-3.0")
        (True, False)
    """
    words, wanted = (re.findall(r"[a-z]+|\d+", name.lower()) for name in (declared, spdx))
    numbers = [word for word in words if word.isdigit()]
    version = next((word for word in wanted if word.isdigit()), None)
    return wanted[:1] == [word for word in words if word == wanted[0]][:1] and (
        version is None or not numbers or version in numbers
    )


def is_license_file(path: str) -> bool:
    """Return whether a file's name says that it is a licence text of the project.

    Example:
        >>> is_license_file("LICENSE-MIT"), is_license_file("src/license.py")
        (True, False)
    """
    name = path.rpartition("/")[2]
    is_code = kind_of(language_of(name) or "Text") == "programming"
    return not is_code and _LICENSE_FILE.fullmatch(name if "/" not in path else path) is not None


def find_licenses(tree: SourceTree, manifests: Iterable[Manifest], progress: Progress) -> tuple[License, ...]:
    """Return every licence that the project names, each once for each way of naming it.

    Licence texts count at the top of the project and in a folder `LICENSES`; those of vendored code are
    their own. Headers are read in the first 2 KiB of source files.
    """
    found: dict[tuple[str, str], License] = {}

    def add(spdx: str, source: str, evidence: Evidence) -> None:
        known = found.get((source, spdx))
        found[source, spdx] = License.model_validate(
            {
                "spdx": spdx,
                "source": source,
                "files": known.files + 1 if known else 1,
                "evidence": known.evidence if known else evidence,
            }
        )

    for path in tree.by_path:
        if is_license_file(path) and tree.by_path[path].kind == "text":
            content = as_text(tree.head(path, _TEXT_BYTES) or b"")
            add(recognise(content), "text", Evidence(path=path))
    for manifest in manifests:
        if manifest.license and not manifest.license.upper().startswith(("SEE LICENSE", "UNLICENSED")):
            add(manifest.license, "manifest", Evidence(path=manifest.path, line=manifest.license_line))
    for number, (path, file) in enumerate(tree.by_path.items()):
        if number % 500 == 0:
            progress(f"licences: {number} files")
        if file.kind == "text" and role_of(path) in ("source", "test") and _may_have_header(path):
            head = as_text(tree.head(path, _HEAD_BYTES) or b"")
            tag = _HEADER.search(head)
            if tag:
                add(tag[1], "header", Evidence(path=path, line=line_of(tag)))
    return tuple(found.values())


def _may_have_header(path: str) -> bool:
    language = language_of(path)
    return language is not None and kind_of(language) in ("programming", "markup")
