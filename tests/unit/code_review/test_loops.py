"""Our own rules on loops: each on code that breaks it, and on code that looks like it and does not."""

import pytest

from activities.code_review.loops import find_loops
from activities.code_review.records import Finding, SourceText


def loops_in(text: str) -> list[Finding]:
    """Return the findings in a text."""
    return find_loops(SourceText(path="a.py", language="Python", text=text))


_NESTED = "def f(a):\n    for x in a:\n        while x:\n            for y in x:\n                print(y)\n"
_FETCH = "import requests\ndef f(urls):\n    return_all = []\n    for url in urls:\n        requests.get(url)\n"


class TestFindLoops:
    """One rule after the other."""

    @pytest.mark.parametrize(
        ("text", "rule", "line"),
        [
            pytest.param(_NESTED, "LOOP301", 4, id="three loops deep"),
            pytest.param(_FETCH, "LOOP302", 5, id="a request in a loop"),
            pytest.param("for i in x:\n    session.execute(i)\n", "LOOP302", 2, id="a query at the module's top"),
            pytest.param("while True:\n    subprocess.run(['x'])\n", "LOOP302", 2, id="a program in a loop"),
            pytest.param("async def f(a):\n    for x in a:\n        await s.scalar(x)\n", "LOOP302", 3, id="awaited"),
            pytest.param(
                "seen = []\nfor x in y:\n    if x in seen:\n        pass\n", "LOOP303", 3, id="a list searched"
            ),
            pytest.param("t = ''\nfor x in y:\n    t += x\n", "LOOP304", 3, id="a text grown"),
            pytest.param("for x in y:\n    z.insert(0, x)\n", "LOOP305", 2, id="put in front"),
            pytest.param("while q:\n    q.pop(0)\n", "LOOP305", 2, id="taken from the front"),
            pytest.param("while q.pop(0):\n    pass\n", "LOOP305", 1, id="in the condition"),
        ],
    )
    def test_finds(self, text: str, rule: str, line: int) -> None:
        """The rule, at its line."""
        assert [(one.rule, one.line) for one in loops_in(text)] == [(rule, line)]

    @pytest.mark.parametrize(
        "text",
        [
            pytest.param("for x in db.execute('q'):\n    print(x)\n", id="what is gone through is worked out once"),
            pytest.param("for x in a:\n    def f():\n        db.execute(x)\n", id="a function made in a loop"),
            pytest.param("seen = set()\nfor x in y:\n    x in seen\n", id="a set searched"),
            pytest.param("seen = []\nseen = {}\nfor x in y:\n    x in seen\n", id="a name that is more than a list"),
            pytest.param("n = 0\nfor x in y:\n    n += x\n", id="a number grown"),
            pytest.param("for x in y:\n    z.pop()\n    z.insert(1, x)\n    z.pop(False)\n", id="not in front"),
            pytest.param("for x in a:\n    for y in x:\n        print(y)\nfor z in a:\n    pass\n", id="two deep"),
            pytest.param("for x in a:\n    pass\nelse:\n    db.execute(1)\n", id="after the loop"),
            pytest.param("def (:\n", id="no Python"),
        ],
    )
    def test_leaves_alone(self, text: str) -> None:
        """Nothing is found."""
        assert loops_in(text) == []

    @pytest.mark.parametrize(
        ("comment", "suppressed"),
        [
            pytest.param("# noqa", True, id="all rules"),
            pytest.param("# noqa: E501, LOOP305", True, id="this rule"),
            pytest.param("# noqa: LOOP301", False, id="another of ours"),
            pytest.param("# noqa: E501", False, id="another"),
        ],
    )
    def test_marks_what_a_comment_suppresses(self, comment: str, suppressed: bool) -> None:
        """As with the other analysers."""
        assert [one.suppressed for one in loops_in(f"while q:\n    q.pop(0)  {comment}\n")] == [suppressed]
