"""Finding and deciding in a browser: the inbox, several alike at once, two people about one question, the keyboard."""

from temporalio.worker import Worker

from baton.client import Role, read_run
from tests.console.browser.conftest import Office, Person, begun
from tests.console.browser.desk_pipelines import asks, confirms
from tests.console.browser.test_deciding import asked, fill, fits, output, pay, press
from tests.support import until_waiting


async def test_31_mine_and_all_alike_at_once(office: Office, desk_worker: Worker, quiet: list[Person]) -> None:
    """From the inbox that shows one's own to one decision about three of four, each as it was shown."""
    ann = await office.person()
    quiet.append(ann)
    ids = [f"alike-{number}" for number in range(4)]
    handles = [await begun(desk_worker, confirms, id, f"Publish part {id}") for id in ids]
    other = await begun(desk_worker, asks, "alike-other", params={"who": ["bob"]})
    for handle in handles:
        await until_waiting(handle, "publication")
    await until_waiting(other, "payment")
    await ann.open("/inbox")
    await ann.page.locator("li", has_text="alike-other").wait_for()
    for id in ids:
        await ann.page.locator("li", has_text=id).wait_for()  # the page follows by itself
    await ann.shot("31-inbox")
    await ann.page.get_by_label("only mine").check()
    await ann.page.get_by_label("Pipeline").fill("confirms")
    await press(ann, "Filter")
    await ann.page.locator("li", has_text="alike-3").wait_for()
    assert await ann.page.locator("li", has_text="alike-other").count() == 0
    await ann.page.get_by_role("link", name="together").first.click()
    await ann.sees("Publish part alike-0")
    for box in await ann.page.get_by_role("checkbox").all():
        label = await box.evaluate("box => box.parentElement.textContent")
        await box.set_checked(any(id in label for id in ids[:3]))
    await ann.shot("31-together")
    await fits(ann)
    await fill(ann, Why="all four eyes")
    await press(ann, "Approve all chosen")
    await ann.sees("3 of 3 sent.")
    await ann.shot("31-decided")
    assert [await output(handle) for handle in handles[:3]] == [{"who": "ann", "why": "all four eyes"}] * 3
    assert (await read_run(desk_worker.client, handles[3].id)).approvals
    for handle in (handles[3], other):
        await handle.terminate()


async def test_32_the_second_is_told_whose_decision_counted(
    office: Office, desk_worker: Worker, quiet: list[Person]
) -> None:
    """Live, while they still type; and when they send a page that did not follow."""
    ann, bob = await office.person(), await office.person("bob", Role.DECIDER)
    late = await office.person("carol", Role.DECIDER, java_script_enabled=False)
    quiet += [ann, bob, late]
    handle = await begun(desk_worker, confirms, "second-1")
    path = await asked(handle, "publication")
    for person in (ann, bob, late):
        await person.open(path)
        await fill(person, Why=f"{person.name} has read it")
    await press(bob, "Deny")
    await bob.sees("by bob")
    await ann.sees("What you had entered was not sent.")
    await ann.sees("by bob")
    await ann.shot("32-overtaken")
    await press(late, "Approve")
    await late.sees("bob decided first: denied")
    await late.sees("You had entered: carol has read it")
    await late.shot("32-late")


async def test_33_a_quorum_tells_each_who_has_decided(office: Office, desk_worker: Worker, quiet: list[Person]) -> None:
    """Both have the page open: the second sees the first one's vote arrive, and both see whose counted."""
    ann, bob = await office.person(), await office.person("bob", Role.DECIDER)
    quiet += [ann, bob]
    handle = await begun(desk_worker, confirms, "quorum-2", params={"needs": 2})
    path = await asked(handle, "publication")
    await ann.open(path)
    await bob.open(path)
    await ann.sees("0 of 2")
    await fill(bob, Why="bob has read it")
    await press(bob, "Approve")
    await bob.sees("You have approved; 1 more must approve.")
    await ann.sees("1 of 2")
    await ann.sees("bob has read it")
    await fill(ann, Why="so have I")
    await press(ann, "Approve")
    for person in (ann, bob):
        await person.sees("by bob, ann")
        await person.sees("so have I")
    assert (await output(handle))["who"] == "bob, ann"


async def test_34_the_question_first_and_the_form_at_hand(
    office: Office, desk_worker: Worker, quiet: list[Person]
) -> None:
    """Question and goal stand above the material; the form is beside it where there is room, and one key away."""
    wide = await office.person(viewport={"width": 1280, "height": 800})
    phone = await office.person(viewport={"width": 390, "height": 800}, is_mobile=True, has_touch=True)
    quiet += [wide, phone]
    handle = await begun(desk_worker, asks, "layout-1", "Pay the printer")
    path = await asked(handle, "payment")
    for person in (wide, phone):
        await person.open(path)
        places = {}
        for name, selector in {
            "question": ".asks",
            "goal": ".goal-line",
            "material": ".material",
            "form": "#decide",
        }.items():
            box = await person.page.locator(selector).bounding_box()
            assert box is not None
            places[name] = box
        assert places["question"]["y"] < places["goal"]["y"] < places["material"]["y"]
        is_beside = places["form"]["x"] >= places["material"]["x"] + places["material"]["width"]
        assert is_beside is (person is wide)
        await fits(person)
    await wide.page.keyboard.press("Tab")
    await wide.page.keyboard.press("Tab")
    await wide.page.keyboard.press("Enter")
    await wide.page.keyboard.press("Tab")
    assert await wide.page.evaluate("document.activeElement.name") == "answer/amount"
    await phone.page.get_by_role("link", name="To the decision", exact=True).tap()
    await phone.page.wait_for_url("**#decide")
    await pay(phone)
    await phone.sees("by ann")
    assert (await output(handle))["answer"]["amount"] == 40


async def test_35_times_are_in_the_readers_zone(office: Office, desk_worker: Worker, quiet: list[Person]) -> None:
    """Relative, with the absolute time on hover; without scripts it is in UTC."""
    ann = await office.person(timezone_id="Asia/Tokyo")
    plain = await office.person("plain", java_script_enabled=False, timezone_id="Asia/Tokyo")
    quiet += [ann, plain]
    handle = await begun(desk_worker, confirms, "zone-1")
    path = await asked(handle, "publication")
    for person, zone in ((ann, "GMT+9"), (plain, "UTC")):
        await person.open(path)
        due = person.page.locator("time.until")
        assert (await due.text_content() or "").startswith("in ")
        title = await due.get_attribute("title") or ""
        assert title.endswith(zone), title
    await handle.terminate()
