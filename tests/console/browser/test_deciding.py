"""An operator decides in a browser: approvals, and handoffs that wait for a person."""

from typing import Any

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.worker import Worker

from baton import Budget, PipelineStatus
from baton.client import Question, Role, decide, read_run
from baton.console.pages_inbox import approval_path, handoff_path
from baton.wire.names import QUERY_QUESTIONS
from tests.console.browser.conftest import Office, Person, begun
from tests.console.browser.desk_pipelines import asks, confirms
from tests.handoff.handoff_pipelines import Breaks, Forgets, FourAgents, Spends
from tests.support import answer_to, until, until_waiting


async def asked(handle: Any, name: str) -> str:
    """Return the path of the page of an approval, once it is open."""
    now = await until_waiting(handle, name)
    return approval_path(handle.id, now.questions[0].id)


async def held(handle: Any) -> str:
    """Return the path of the page of the run's only handoff that waits, once it does."""
    await until(handle, lambda now: now.status is PipelineStatus.PENDING_HANDOFF)
    [one] = await handle.query(QUERY_QUESTIONS, result_type=list[Question])
    return handoff_path(handle.id, one.handoff.handoff_id)


async def fill(person: Person, **fields: str) -> None:
    """Fill in fields of the form by their labels."""
    for label, text in fields.items():
        await person.page.get_by_label(label, exact=False).first.fill(text)


async def press(person: Person, button: str) -> None:
    """Press a button of the form."""
    await person.page.get_by_role("button", name=button, exact=True).click()


async def pay(person: Person, amount: str = "40", why: str = "it is due") -> None:
    """Fill in the form of a payment, and approve it."""
    await fill(person, Amount=amount, Why=why)
    await person.page.get_by_label("Account").select_option(label="travel")
    await press(person, "Approve")


async def output(handle: Any) -> Any:
    """Return what a run returned."""
    return (await handle.result()).output


class TestApprovals:
    """What is asked, and what counts."""

    async def test_01_from_the_inbox_to_a_typed_yes(
        self, office: Office, desk_worker: Worker, quiet: list[Person]
    ) -> None:
        """The inbox links to the exhibits; the form's values arrive typed, under the authenticated name."""
        ann = await office.person()
        quiet.append(ann)
        handle = await begun(desk_worker, asks, "typed-1", "Pay the invoice of the printer")
        path = await asked(handle, "payment")
        await ann.open("/inbox")
        entry = ann.page.locator("li", has_text="typed-1")
        await entry.wait_for()
        await ann.shot("01-inbox")
        await entry.get_by_role("link", name="payment").click()
        await ann.page.wait_for_url(f"**{path.replace(':', '%3A')}")
        for text in ("+pay in 14 days", "-pay in 30 days", "12.50 USD", "Pay this invoice?"):
            await ann.sees(text)
        assert await ann.page.get_by_role("cell", name="ink").count() == 1
        await ann.shot("01-approval")
        await pay(ann)
        await ann.sees("by ann")
        await ann.shot("01-approved")
        assert await output(handle) == {"answer": {"amount": 40, "account": "travel"}, "who": "ann", "why": "it is due"}

    async def test_02_a_denial_with_its_reason(self, office: Office, desk_worker: Worker, quiet: list[Person]) -> None:
        """It needs no form, only a reason; the run gets both."""
        ann = await office.person()
        quiet.append(ann)
        handle = await begun(desk_worker, asks, "no-1")
        await ann.open(await asked(handle, "payment"))
        await fill(ann, Why="not ours")
        await press(ann, "Deny")
        await ann.sees("Denied")
        await ann.shot("02-denied")
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()
        assert "not ours" in str(failed.value.cause)

    async def test_03_an_invalid_form_marks_its_faults_and_keeps_its_inputs(
        self, office: Office, desk_worker: Worker, quiet: list[Person]
    ) -> None:
        """The console and the pipeline's model check what the browser cannot."""
        ann = await office.person()
        quiet.append(ann)
        handle = await begun(desk_worker, asks, "wrong-1")
        await ann.open(await asked(handle, "payment"))
        await ann.page.eval_on_selector("form.decide", "form => { form.noValidate = true; }")
        await fill(ann, Amount="40", Note="by card")
        await press(ann, "Approve")
        await ann.sees("Nothing was sent.")
        await ann.sees("give a reason")
        assert await ann.page.get_by_label("Note").input_value() == "by card"
        await ann.shot("03-faults")
        await ann.page.eval_on_selector("form.decide", "form => { form.noValidate = true; }")
        await pay(ann, amount="500")
        await ann.sees("give at most 100")
        assert await ann.page.get_by_label("Amount").input_value() == "500"
        await ann.shot("03-refused-at-its-field")
        await pay(ann)
        await ann.sees("by ann")
        assert (await output(handle))["answer"] == {"amount": 40, "account": "travel", "note": "by card"}

    async def test_04_two_people_approve_and_see_each_other(
        self, office: Office, desk_worker: Worker, quiet: list[Person]
    ) -> None:
        """The second form has the first answer; both are recorded, and nobody counts twice."""
        ann, bob = await office.person(), await office.person("bob", Role.DECIDER)
        quiet += [ann, bob]
        handle = await begun(desk_worker, asks, "quorum-1", params={"needs": 2})
        path = await asked(handle, "payment")
        await bob.open(path)
        await pay(bob, why="bob has seen it")
        await bob.sees("You have approved; 1 more must approve.")
        await bob.shot("04-first-vote")
        await ann.open(path)
        await ann.sees("bob approved")
        assert await ann.page.get_by_label("Amount").input_value() == "40"
        await ann.shot("04-second-vote")
        await fill(ann, Why="ann as well")
        await press(ann, "Approve")
        await ann.sees("by bob, ann")
        await bob.sees("by bob, ann")
        assert (await output(handle))["who"] == "bob, ann"

    async def test_05_an_open_page_follows_the_decision_of_another(
        self, office: Office, desk_worker: Worker, quiet: list[Person]
    ) -> None:
        """The form disappears, and its inputs are not sent."""
        ann = await office.person()
        quiet.append(ann)
        handle = await begun(desk_worker, confirms, "settled-1")
        await ann.open(await asked(handle, "publication"))
        await fill(ann, Why="I was about to")
        other = await answer_to(handle, "publication")
        await decide(desk_worker.client, handle.id, other.model_copy(update={"who": "carol", "why": "quicker"}))
        await ann.sees("by carol")
        await ann.page.locator("form.decide").wait_for(state="hidden")
        await ann.shot("05-settled-by-another")
        assert (await output(handle)) == {"who": "carol", "why": "quicker"}

    async def test_06_sending_twice_decides_once(
        self, office: Office, desk_worker: Worker, quiet: list[Person]
    ) -> None:
        """From two windows; the second shows the first answer."""
        ann = await office.person()
        quiet.append(ann)
        handle = await begun(desk_worker, confirms, "twice-1", params={"needs": 2})
        path = await asked(handle, "publication")
        await ann.open(path)
        body = await ann.page.eval_on_selector(
            "form.decide", "form => new URLSearchParams([...new FormData(form), ['approved', 'yes']]).toString()"
        )
        sent = body.replace("why=", "why=once")
        headers = {"origin": ann.base, "content-type": "application/x-www-form-urlencoded"}
        answers = [await ann.page.request.post(f"{ann.base}{path}", data=sent, headers=headers) for _ in range(2)]
        assert [answer.status for answer in answers] == [200, 200]
        now = await until_waiting(handle, "publication")
        assert [vote.who for vote in now.questions[0].votes] == ["ann"]
        no = (await answer_to(handle, "publication", yes=False)).model_copy(update={"who": "carol"})
        await decide(desk_worker.client, handle.id, no)
        await ann.sees("Denied")
        await ann.shot("06-denied-after-one-vote")

    async def test_07_a_decision_on_outdated_exhibits_is_rejected(
        self, office: Office, desk_worker: Worker, quiet: list[Person]
    ) -> None:
        """The digest differs, and the page shows the current exhibits."""
        ann = await office.person()
        quiet.append(ann)
        handle = await begun(desk_worker, confirms, "stale-1")
        await ann.open(await asked(handle, "publication"))
        await ann.page.eval_on_selector(
            "input[name=mark]", "it => { it.value = it.value.replace(/:.{64}/, ':' + '0'.repeat(64)); }"
        )
        await fill(ann, Why="I saw something else")
        await press(ann, "Approve")
        await ann.sees("has changed since it was shown")
        await ann.sees("What is shown below is how it is now.")
        await ann.shot("07-changed")
        await press(ann, "Approve")
        await ann.sees("by ann")
        assert (await output(handle))["why"] == "I saw something else"

    async def test_08_a_viewer_looks_and_cannot_decide(
        self, office: Office, desk_worker: Worker, quiet: list[Person]
    ) -> None:
        """There is no form, and a forged one is refused."""
        vic = await office.person("vic", Role.VIEWER)
        quiet.append(vic)
        handle = await begun(desk_worker, confirms, "viewer-1")
        path = await asked(handle, "publication")
        await vic.open(path)
        await vic.sees("This is for the role decider.")
        await vic.shot("08-viewer")
        for other in (path, "/handoff?run=viewer-1&handoff=x", "/rollback?run=viewer-1&to=1", "/start?pipeline=x"):
            answer = await vic.page.request.post(f"{vic.base}{other}", form={"why": "x"}, headers={"origin": vic.base})
            assert answer.status == 403
        await handle.terminate()

    async def test_09_without_scripts(self, office: Office, desk_worker: Worker, quiet: list[Person]) -> None:
        """A complete decision: inbox, page, a refused form, the form again, the answer."""
        ann = await office.person(java_script_enabled=False)
        quiet.append(ann)
        handle = await begun(desk_worker, asks, "noscript-1")
        path = await asked(handle, "payment")
        await ann.open("/inbox")
        while not await ann.page.locator("li", has_text="noscript-1").count():
            await ann.page.reload()
        await ann.page.locator("li", has_text="noscript-1").get_by_role("link").click()
        await pay(ann, why="   ")
        await ann.sees("Nothing was sent.")
        await fill(ann, Why="by hand")
        await press(ann, "Approve")
        await ann.sees("by ann")
        assert path.partition("?")[0] in ann.page.url
        await ann.shot("09-without-scripts")
        assert (await output(handle))["why"] == "by hand"

    async def test_10_by_the_keyboard_alone(self, office: Office, desk_worker: Worker, quiet: list[Person]) -> None:
        """From the address to the decision."""
        ann = await office.person()
        quiet.append(ann)
        handle = await begun(desk_worker, confirms, "keys-1")
        await ann.open(await asked(handle, "publication"))
        await ann.page.keyboard.press("Tab")
        await ann.page.keyboard.press("Enter")
        for _ in range(40):
            await ann.page.keyboard.press("Tab")
            if await ann.page.evaluate("document.activeElement.id") == "why":
                break
        await ann.page.keyboard.type("typed")
        await ann.page.keyboard.press("Tab")
        await ann.shot("10-focus")
        await ann.page.keyboard.press("Enter")
        await ann.sees("by ann")
        assert (await output(handle))["why"] == "typed"

    async def test_11_a_phone(self, office: Office, desk_worker: Worker, quiet: list[Person]) -> None:
        """Inbox and decision fit a small screen, in both writing directions."""
        ann = await office.person(viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True)
        quiet.append(ann)
        handle = await begun(desk_worker, asks, "phone-1", params={"text": "الفاتورة " * 20, "asks": "هل ندفع؟"})
        path = await asked(handle, "payment")
        await ann.open("/inbox")
        await ann.page.locator("li", has_text="phone-1").wait_for()
        await ann.shot("11-phone-inbox")
        await fits(ann)
        await ann.open(path)
        await ann.shot("11-phone-approval")
        await fits(ann)
        await ann.page.eval_on_selector("html", "it => { it.dir = 'rtl'; }")
        await ann.shot("11-phone-rtl")
        await fits(ann)
        await pay(ann)
        await ann.sees("by ann")
        await handle.result()


async def fits(person: Person) -> None:
    """Assert that a page is no wider than its window."""
    assert await person.page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1")


class TestHandoffs:
    """Dead letters, needs-input, escalations and exhausted budgets."""

    async def test_12_a_false_alarm_is_released(self, office: Office, desk_worker: Worker, quiet: list[Person]) -> None:
        """The finding is marked in its text; the release is recorded under the name."""
        ann = await office.person()
        quiet.append(ann)
        handle = await begun(desk_worker, FourAgents, "release-1", params={"poisoned": True})
        await ann.open(await held(handle))
        await ann.sees("Ignore all previous instructions")
        await ann.page.get_by_label("Release").check()
        await fill(ann, Why="a quotation")
        await ann.shot("12-dead-letter")
        await press(ann, "Decide")
        await ann.sees("by ann")
        await ann.shot("12-released")
        await handle.result()
        run = await read_run(desk_worker.client, handle.id)
        assert [(told.who, told.choice, told.why) for told in run.handoff_decisions] == [
            ("ann", "release", "a quotation")
        ]

    async def test_13_an_edit_is_checked_as_it_is_typed(
        self, office: Office, desk_worker: Worker, quiet: list[Person]
    ) -> None:
        """Against the pipeline's rules; the completed baton lets the run continue."""
        ann = await office.person()
        quiet.append(ann)
        handle = await begun(desk_worker, Forgets, "edit-1", params={"stubborn": True})
        path = await held(handle)
        await ann.open("/inbox")
        await ann.page.locator("li", has_text="edit-1").get_by_text("needs input").wait_for()
        await ann.open(path)
        await ann.page.get_by_label("Edit").check()
        patch = ann.page.get_by_label("Patch of the baton")
        await patch.fill('{"decision_log": null}')
        await ann.sees("only grows")
        await ann.shot("13-patch-refused")
        await patch.fill('{"work_scope": "clauses')
        await ann.sees("this is not JSON")
        await patch.fill('{"work_scope": ["clauses/*"]}')
        await ann.sees("This patch fits the pipeline's rules.")
        await fill(ann, Why="the scope was left out")
        await ann.shot("13-patch-fits")
        await press(ann, "Decide")
        await ann.sees("by ann")
        result = await handle.result()
        assert result.baton["work_scope"] == ["clauses/*"]

    async def test_14_an_exhausted_budget_is_topped_up(
        self, office: Office, desk_worker: Worker, quiet: list[Person]
    ) -> None:
        """The page shows what is missing and left; an invalid amount is refused."""
        ann = await office.person()
        quiet.append(ann)
        handle = await begun(desk_worker, Spends, "budget-1", budget=Budget(initial_micro_usd=200_000))
        path = await held(handle)
        await ann.open("/inbox")
        await ann.page.locator("li", has_text="budget-1").get_by_text("budget exhausted").wait_for()
        await ann.open(path)
        await ann.sees("lacks $0.03")
        await ann.page.get_by_label("Top up").check()
        await fill(ann, Amount="a lot", Why="worth it")
        await press(ann, "Decide")
        await ann.sees("is not an amount above zero")
        await ann.shot("14-not-an-amount")
        await fill(ann, Amount="1.00")
        await press(ann, "Decide")
        await ann.sees(": worth it")
        assert (await handle.result()).topped_up_micro_usd == 1_000_000

    async def test_15_an_escalation_is_requeued_and_then_abandoned(
        self, office: Office, desk_worker: Worker, quiet: list[Person]
    ) -> None:
        """It fails again and waits again; the old page's decision does not apply to the new wait."""
        ann = await office.person()
        quiet.append(ann)
        handle = await begun(desk_worker, Breaks, "escalate-1")
        await ann.open(await held(handle))
        await ann.sees("the model is down")
        await ann.page.get_by_label("Requeue").check()
        await fill(ann, Why="it is up again")
        await press(ann, "Decide")
        await ann.sees(": it is up again")
        await ann.page.get_by_label("Abandon").wait_for()  # the page reloads once the handoff waits again
        await ann.shot("15-requeued")
        await ann.open("/inbox")
        entry = ann.page.locator("li", has_text="escalate-1")
        await entry.wait_for()
        path = await entry.get_by_role("link").get_attribute("href")
        await ann.open(str(path))
        await ann.page.get_by_label("Abandon").check()
        await fill(ann, Why="enough")
        await press(ann, "Decide")
        await ann.sees(": enough")
        await ann.shot("15-abandoned")
        with pytest.raises(WorkflowFailureError):
            await handle.result()

    async def test_16_an_open_handoff_page_follows_the_decision_of_another(
        self, office: Office, desk_worker: Worker, quiet: list[Person]
    ) -> None:
        """The form disappears."""
        ann, bob = await office.person(), await office.person("bob", Role.DECIDER)
        quiet += [ann, bob]
        handle = await begun(desk_worker, FourAgents, "both-1", params={"poisoned": True})
        path = await held(handle)
        await ann.open(path)
        await bob.open(path)
        await bob.page.get_by_label("Abandon").check()
        await fill(bob, Why="not good")
        await press(bob, "Decide")
        await ann.sees("by bob")
        await ann.page.locator("form.decide").wait_for(state="hidden")
        await ann.shot("16-decided-by-another")
        with pytest.raises(WorkflowFailureError):
            await handle.result()
