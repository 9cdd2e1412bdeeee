"""A run's page, its steps opened, two points side by side, artifacts, the audit, the report."""

import html
import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from baton.client import Answer, RunRecord, decide, fork, read_run, verify_bundle
from baton.console.pages_run import has_ended, run_mark
from baton.console.rendering import Change, changes
from baton.console.report import report
from baton.console.sources import Sources
from tests.console.conftest import Browser, parameters, started
from tests.console.console_pipelines import NOTES, checks, failing, fans, long, maps, nested, release
from tests.support import Handle, answer_to, events, until_waiting


@pytest.fixture(scope="module")
async def waiting(worker: Worker) -> Handle:
    """Return a run that waits for the release manager."""
    handle: Handle = await started(worker, release, "run-waits", "Write the notes of 1.2")
    await until_waiting(handle, "release manager")
    return handle


@pytest.fixture(scope="module")
async def record(client: Client, waiting: Handle) -> RunRecord:
    """Return it as its history has it."""
    return await read_run(client, waiting.id)


async def _page(browser: Browser, path: str, **parameters: Any) -> str:
    answer = await browser.http.get(path, params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.text


def _text(page: str) -> str:
    """Return a page's text without markup."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


class TestRun:
    """How a run stands, and its relay."""

    async def test_it_shows_the_status_and_the_next_command(self, browser: Browser, waiting: Handle) -> None:
        """For whom it waits, until when, and the command that decides."""
        page = await _page(browser, "/run", id=waiting.id)
        text = _text(page)

        assert "Waits for the decision 'release manager', by ann, group:release, until " in text
        assert re.search(r'class="standing">.*?<time datetime="[^"]*">.*?class="until" datetime=', page)
        assert f"baton approve {waiting.id} 'release manager' --who '…' --why '…'" in text

    async def test_the_fact_comes_first_and_the_command_second(self, browser: Browser, waiting: Handle) -> None:
        """Whoever opens the page reads what is so; the command is folded below it."""
        page = await _page(browser, "/run", id=waiting.id)
        folded = page.partition('<details id="commands">')[2].partition("</details>")[0]

        assert "baton approve" in folded
        assert page.index('class="standing"') < page.index('aria-label="This run"') < page.index('id="commands"')

    async def test_the_relay_has_every_step_with_attempts_spend_and_children(
        self, browser: Browser, waiting: Handle, record: RunRecord
    ) -> None:
        """Each step is a bar in time, a wait a bar of another kind, a child is a branch with a link."""
        page = await _page(browser, "/run", id=waiting.id)
        text = _text(page)
        child = record.children[0][0]
        bars = dict(re.findall(r'<tr id="step-(\d+)">.*?<rect class="(work|wait) ', page, re.DOTALL))

        assert [int(seq) for seq in re.findall(r'id="step-(\d+)"', page)] == [step.seq for step in record.steps]
        assert bars == {str(step.seq): "wait" if step.name == "release manager" else "work" for step in record.steps}
        assert "2 attempts" in text
        assert "warning" not in text, "what is only on record is nothing that somebody should look at"
        assert "$0.04 4,800 tokens" in text
        assert f"↳ {child}" in text
        assert "check" in _text(await _page(browser, "/run", id=child))

    async def test_a_failed_run_says_why_and_how_to_repair_it(self, browser: Browser, worker: Worker) -> None:
        """With the step and the command."""
        handle = await started(worker, failing, "run-fails", "Fail")
        await _ended(handle)
        text = _text(await _page(browser, "/run", id=handle.id))

        assert "Failed: " in text
        assert "the model is gone" in text
        assert "baton rollback run-fails --to 2 --why '…'" in text

    async def test_a_long_run_is_paged(self, browser: Browser, worker: Worker) -> None:
        """The newest steps first; the address names another page."""
        handle = await started(worker, long, "run-long", "Take steps", steps=120)
        await handle.result()
        newest = await _page(browser, "/run", id=handle.id)
        first = await browser.get(f"/run?id={handle.id}&from=0")

        assert "Steps 21 to 120" in _text(newest)
        assert 'id="step-1"' in first.text
        assert 'id="step-101"' not in first.text

    async def test_each_branch_has_a_bar_a_status_a_duration_and_its_cost(
        self, browser: Browser, worker: Worker
    ) -> None:
        """Fifty items are counted by status and listed one by one; the failed one says why."""
        handle = await started(worker, maps, "run-maps", "Count", items=50)
        await handle.result()
        page = await _page(browser, "/run", id=handle.id)
        rows = re.findall(r'<tr class="leg">.*?</tr>', page, re.DOTALL)
        [failed] = [row for row in rows if "count_letters 7<" in row]

        assert "50 at once: 1 failed , 49 done" in _text(page)
        assert len(rows) == 50
        assert all("<rect " in row and re.search(r"\d (ms|s)", _text(row)) for row in rows)
        assert "no such letter" in failed
        assert "$0.001" in _text(rows[0])
        assert "1 warning" in _text(page), "a failed item is something to look at"

    async def test_a_step_is_found_by_number_or_name_and_failed_steps_alone(
        self, browser: Browser, worker: Worker
    ) -> None:
        """In a run of several pages, the address leads to the page of the step."""
        handle = await started(worker, failing, "run-find", "Fail", steps=130)
        await _ended(handle)
        found = await browser.get(f"/run?id={handle.id}&at=3")
        by_name = await browser.get(f"/run?id={handle.id}&at=breaks")
        failed = await _page(browser, "/run", id=handle.id, only="failed")

        assert 'id="step-3"' in found.text
        assert str(found.url).endswith("#step-3")
        assert str(by_name.url).endswith("#step-131")
        assert re.findall(r'id="step-(\d+)"', failed) == ["131"]
        assert "only=failed" in found.text
        assert (await browser.get(f"/run?id={handle.id}&at=999")).status_code == 409

    async def test_runs_inside_it_open_in_place(
        self, browser: Browser, client: Client, worker: Worker, sources: Sources
    ) -> None:
        """Each level is fetched when it is opened, and is a link without scripts; the report has them all."""
        handle = await started(worker, nested, "run-nested", "Nest", depth=2)
        await handle.result()
        page = await _page(browser, "/run", id=handle.id)
        [below] = re.findall(r'data-part="([^"]+)"', page)
        part = (await browser.get(html.unescape(below))).text
        [deepest] = re.findall(r'data-part="([^"]+)"', part)
        child, grandchild = (urlsplit(html.unescape(path)).query for path in (below, deepest))

        assert f'href="/run?{html.escape(child)}"' in page
        assert "<html" not in part
        assert {"Completed", "below", "tick"} <= {*re.findall(r"\w+", _text(part))}
        assert parameters(f"?{grandchild}")["id"].startswith(parameters(f"?{child}")["id"])
        written = await report(sources, handle.id)
        assert "data-part" not in written
        assert all(f"<bdi>{parameters(f'?{query}')['id']}</bdi>" in written for query in (child, grandchild))

    async def test_it_links_to_the_temporal_ui_and_back(self, browser: Browser, record: RunRecord) -> None:
        """Back by the same path at the console's host."""
        page = await _page(browser, "/run", id=record.workflow_id)
        [link] = re.findall(r'href="(http://127.0.0.1:8233/[^"]+)"', page)
        back = await browser.get(urlsplit(link).path)

        assert link.endswith(f"/namespaces/default/workflows/run-waits/{record.run_id}/history")
        assert "run-waits" in back.text
        assert back.url.path == "/run"

    async def test_a_missing_run_step_or_artifact_is_a_message(self, browser: Browser, waiting: Handle) -> None:
        """Not a stack trace."""
        for path in ("/run?id=no-such", f"/run/artifact?id={waiting.id}&artifact=none", "/run", "/nowhere"):
            assert (await browser.get(path)).status_code == 404
        assert (await browser.get(f"/run/step?id={waiting.id}&step=99")).status_code == 409


class TestPicture:
    """The relay in one picture: who carried the baton, when, what it cost, where it waited and fell."""

    async def test_each_carrier_has_a_lane_with_times_cost_falls_and_waits(
        self, browser: Browser, waiting: Handle, sources: Sources
    ) -> None:
        """Agents, both branches, the child and the person; in words for who does not see it, and in the report."""
        page = await _page(browser, "/run", id=waiting.id)

        for text in (page, await report(sources, waiting.id)):
            figure, *inside = re.findall(r'<figure class="track">.*?</figure>', text, re.DOTALL)
            lanes = [_text(lane) for lane in re.findall(r"<li>.*?</li>", figure, re.DOTALL)]
            [label] = re.findall(r'<svg height="\d+" role="img" aria-label="([^"]+)"', figure)
            names = ["research", "draft", "collect", "check", "document", "checks", "release manager"]

            assert [name for name in names if any(lane.startswith(name) for lane in lanes)] == names
            assert len(lanes) == len(names)
            assert lanes[1].endswith("$0.04 ✕ fell")
            assert lanes[-1].startswith("release manager person")
            assert lanes[-1].endswith("waits")
            assert "It fell with draft. It waits with release manager." in label
            assert all(name in label for name in names)
            assert len(inside) == (text is not page), "the report has the child's as well"

    async def test_many_at_once_leave_room_for_those_before_and_what_fell(
        self, browser: Browser, worker: Worker
    ) -> None:
        """The rest share a lane; the table names the first."""
        handle = await started(worker, fans, "run-fans", "Work at once")
        await _ended(handle)
        page = await _page(browser, "/run", id=handle.id)
        [figure] = re.findall(r'<figure class="track">.*?</figure>', page, re.DOTALL)
        lanes = [_text(lane) for lane in re.findall(r"<li>.*?</li>", figure, re.DOTALL)]

        assert lanes[0].startswith("tick ")
        assert next(lane for lane in lanes if lane.startswith("part_7 ")).endswith("fell")
        assert lanes[-1].startswith("6 others ")
        assert "part_0 and 13 others" in page

    async def test_it_stays_small_however_long_the_run_is(self, browser: Browser, worker: Worker) -> None:
        """Bars that touch are one."""
        handle = await started(worker, long, "run-picture", "Take steps", steps=150)
        await handle.result()
        page = await _page(browser, "/run", id=handle.id)
        [figure] = re.findall(r'<figure class="track">.*?</figure>', page, re.DOTALL)

        assert len(figure) < 60_000
        assert figure.count("<li>") == 1


async def _ended(handle: Handle) -> None:
    """Wait until a run ends, well or not."""
    async for _ in events(handle):
        pass


class TestStep:
    """A step, opened."""

    async def test_an_agents_step_shows_what_it_saw_and_did(
        self, browser: Browser, waiting: Handle, record: RunRecord
    ) -> None:
        """The context window by parts, the rejected attempt, inputs, output, the handoff's record."""
        page = await _page(browser, "/run/step", id=waiting.id, step=2)
        text = _text(page)
        parts = record.prompts[2, "draft"]

        assert len(re.findall(r'<rect class="tone-\d" x=', page)) == len(parts)
        assert all(part.name in text for part in parts)
        assert f"{sum(part.shown for part in parts):,} of " in text
        assert "Attempt 1 was refused:" in text
        assert "current_state: Input should be a valid list" in text
        assert "plain English" in text
        assert "Handoff from research to draft" in text
        assert "accepted handoff record" in text

    async def test_attempts_and_requests_have_their_times(self, browser: Browser, waiting: Handle) -> None:
        """How long each attempt waited for a worker and worked, how it ended, and when it called what."""
        drafted = await _page(browser, "/run/step", id=waiting.id, step=2)
        researched = _text(await _page(browser, "/run/step", id=waiting.id, step=1))
        [table] = re.findall(r'aria-label="attempts of draft">.*?</table>', drafted, re.DOTALL)
        first, second = (_text(row) for row in re.findall(r"<tr><th .*?</tr>", table, re.DOTALL)[1:])

        assert re.fullmatch(r"1 .* UTC \d+ ms \d+ ms 1 \$0\.02 refused", first)
        assert re.fullmatch(r"2 .* UTC \d+ ms \d+ ms 1 \$0\.02 accepted", second)
        assert re.search(r"\+ ?\d+ ms tool call read_log", researched)

    async def test_tool_calls_are_shown_with_their_results(self, browser: Browser, waiting: Handle) -> None:
        """As recorded in the session."""
        text = _text(await _page(browser, "/run/step", id=waiting.id, step=1))

        assert "read_log call, 3 tokens" in text
        assert "line 0 line 1" in text

    async def test_artifacts_and_output_are_readable_on_their_step(self, browser: Browser, waiting: Handle) -> None:
        """Each in its best form, with a download."""
        drafted = await _page(browser, "/run/step", id=waiting.id, step=2)
        collected = await _page(browser, "/run/step", id=waiting.id, step=3)
        saved = [html.unescape(link) for link in re.findall(r'href="(/run/(?:output|artifact/raw)[^"]*)"', collected)]
        output = re.search(r'href="(/run/output[^"]*)"', drafted)

        assert "<h4>Release notes</h4>" in drafted
        for readable in ("<h4>Release notes</h4>", "return session()", "level-error", "<bdi>ink</bdi>", "picture"):
            assert readable in collected
        assert len(saved) == 6
        assert (await browser.get(saved[0])).headers["content-disposition"].startswith("attachment; ")
        assert output is not None
        assert (await browser.get(html.unescape(output[1]))).json() == {"text": NOTES}

    async def test_branches_of_a_fan_out_are_separate(self, browser: Browser, waiting: Handle) -> None:
        """Each with its own output."""
        page = await _page(browser, "/run/step", id=waiting.id, step=4)

        assert page.count('class="card"') == 2
        assert '"passed": 12' in html.unescape(page)


class TestEdit:
    """What a person changed before a step that was executed again."""

    async def test_it_is_separate_from_the_steps_changes(
        self, browser: Browser, client: Client, worker: Worker, sources: Sources
    ) -> None:
        """An edit has its own row with who and why; the heading has the new goal."""
        handle = await started(worker, checks, "edit-0", "Check")
        await handle.result()
        patch = {"goal": "Check again", "constraints": ["No network"]}
        fork_handle = await fork(client, handle.id, "check", by="ann", why="too wide", patch=patch, new_id="edit-1")
        await fork_handle.result()
        page = await _page(browser, "/run", id="edit-1")
        [edit, step] = re.findall(r"<tr.*?</tr>", page.partition("<tbody>")[2].partition("</tbody>")[0], re.DOTALL)

        assert '<p class="goal-line"><bdi>Check again</bdi></p>' in page
        assert "edited by ann" in _text(edit)
        assert "“ too wide ” - goal: Check + goal: Check again + constraint: No network" in _text(edit)
        assert _text(step).endswith("+ acceptance: pytest passes")
        opened = await _page(browser, "/run/step", id="edit-1", step=1)
        for alone in (opened, (await report(sources, "edit-1")).partition("<h2>Steps</h2>")[2]):
            assert re.findall(r"<ins>(.*?)</ins>", alone) == ["<bdi>pytest passes</bdi>"]


class TestCompare:
    """Two points side by side."""

    async def test_removals_and_additions_are_marked(self, browser: Browser, waiting: Handle) -> None:
        """From one step to another of a run."""
        page = await _page(browser, "/run/compare", id=waiting.id, a=1, b=2)

        assert "<del><bdi>Log read</bdi></del>" in page
        assert "<ins><bdi>Notes drafted 1</bdi></ins>" in page
        assert "fields alike" in page

    async def test_a_point_of_another_run_can_be_compared(
        self, browser: Browser, waiting: Handle, worker: Worker
    ) -> None:
        """Here the runs differ only in their goals."""
        other = await started(worker, checks, "run-other", "Check")
        await other.result()
        page = await _page(browser, "/run/compare", id=waiting.id, a="start", b="start", other=other.id)

        assert "<ins><bdi>Check</bdi></ins>" in page

    async def test_an_unknown_point_is_refused(self, browser: Browser, waiting: Handle) -> None:
        """The message lists the steps."""
        answer = await browser.get(f"/run/compare?id={waiting.id}&a=x'y")

        assert answer.status_code == 409
        assert "its steps are: 1 research" in answer.text


class TestArtifacts:
    """Work products, readable and to be saved."""

    @pytest.mark.parametrize(
        ("id", "expected"),
        [
            pytest.param("notes", "<h4>Release notes</h4>", id="Markdown, its headings below the page's"),
            pytest.param("changes", '<span class="line plus">+    return session()', id="a diff"),
            pytest.param("findings", '<td class="level-error"><bdi>error</bdi></td>', id="SARIF as a table"),
            pytest.param("prices", "<td><bdi>ink</bdi></td>", id="a table"),
            pytest.param("picture", '<img class="picture" src="/run/artifact/raw?', id="a picture"),
            pytest.param("data", "&#34;b&#34;: null", id="JSON, indented"),
        ],
    )
    async def test_each_kind_of_artifact_is_readable(
        self, browser: Browser, waiting: Handle, id: str, expected: str
    ) -> None:
        """By its content, not only by its name."""
        assert expected in await _page(browser, "/run/artifact", id=waiting.id, artifact=id)

    async def test_the_bytes_are_saved_and_never_opened(self, browser: Browser, waiting: Handle) -> None:
        """Only images are displayed, in a sandbox."""
        saved = await browser.get(f"/run/artifact/raw?id={waiting.id}&artifact=notes&show=1")
        picture = await browser.get(f"/run/artifact/raw?id={waiting.id}&artifact=picture&show=1")

        assert saved.headers["content-disposition"] == "attachment; filename*=UTF-8''NOTES.md"
        assert saved.headers["content-type"] == "application/octet-stream"
        assert picture.headers["content-type"] == "image/png"
        assert "content-disposition" not in picture.headers
        assert {saved.headers["content-security-policy"], picture.headers["content-security-policy"]} == {
            "default-src 'none'; sandbox"
        }


class TestLive:
    """What a page is told while a run happens."""

    async def test_changes_are_streamed_and_a_reconnect_resumes(self, sources: Sources, worker: Worker) -> None:
        """At the page's cursor; the stream ends with the run."""

        def followed(cursor: str) -> AsyncIterator[Change]:
            return changes(cursor, lambda: run_mark(sources, handle.id, None), 0.1, has_ended)

        handle = await started(worker, release, "live-1", "Watch")
        await until_waiting(handle, "release manager")
        first = await anext(followed(""))
        decision = (await answer_to(handle)).model_copy(update={"answer": {"percent": 10}, "who": "ann"})
        later = followed(first.cursor)
        await decide(worker.client, handle.id, Answer.model_validate(decision.model_dump()))
        await handle.result()
        kinds = [change.kind async for change in later]

        assert first.kind == "changed"
        assert kinds[-1] == "ended"
        assert b"\n" not in Change("changed", "a\nid: b").lines().splitlines()[0]


class TestAudit:
    """The records of a task."""

    async def test_the_verdict_has_its_basis(self, browser: Browser, waiting: Handle, record: RunRecord) -> None:
        """Signatures, anchors, and every record with its message."""
        page = await _page(browser, "/audit", task=record.task_id, id=waiting.id)
        text = _text(page)

        assert "Valid" in text
        assert re.search(r"A signature covers records 1 to \d+", text)
        assert "research → draft" in text
        assert "No erasure is on record" in text
        assert re.search(rf"{waiting.id} waiting", text), "it says of a run what its page says"

    async def test_the_evidence_verifies_without_the_ledger(
        self, browser: Browser, record: RunRecord, tmp_path: Any, sources: Sources
    ) -> None:
        """As with `baton audit verify`."""
        answer = await browser.get(f"/audit/evidence?task={record.task_id}")
        file = tmp_path / "evidence.zst"
        file.write_bytes(answer.content)
        assert sources.evidence is not None
        report = verify_bundle(file, ledger=sources.evidence.name, verifier=sources.evidence.read_keys()[0])

        assert answer.headers["content-disposition"].startswith("attachment; ")
        assert report.task_ids == (record.task_id,) or list(report.task_ids) == [record.task_id]
        assert report.verdict.value.startswith("valid")


class TestReport:
    """A run as one file."""

    async def test_it_is_complete_and_loads_nothing(self, sources: Sources, waiting: Handle) -> None:
        """No scripts or links; images are embedded, and its policy allows only its own style."""
        text = await report(sources, waiting.id)
        addresses = re.findall(r'(?:src|href|action)="([^"]*)"', text)

        assert [address[:15] for address in addresses] == ["data:image/png;"]
        assert "<script" not in text
        assert re.search(r"content=\"default-src 'none'; style-src 'sha256-[\w+/=]+'; img-src data:\"", text)
        assert "read_log" in text
        assert "<h4>Release notes</h4>" in text
        assert "Attempt 1 was refused" in text

    async def test_the_page_offers_the_download(self, browser: Browser, waiting: Handle) -> None:
        """Under the run's name."""
        answer = await browser.get(f"/run/report?id={waiting.id}")

        assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''run-waits.html"
