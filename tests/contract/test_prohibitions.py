"""Which sentences of a user forbid something."""

import pytest

from baton import MemoryArtifactStore
from baton.codec.secrets import WITHHELD, mask_values
from baton.contract.activity import SessionLog
from baton.contract.prohibitions import MAX_PROHIBITION_LENGTH, MAX_PROHIBITIONS, find_prohibitions

FORBID = """
Never touch the public API report.
Write the notes and do not send them.
Please don’t use jQuery here.
You must not call the customer.
The key may never leave this machine.
Leave the public API report alone.
No changes in vendor/, please.
- don't deploy on Friday
Ändere den öffentlichen API-Bericht nicht.
Bitte die Datei nicht löschen!
Der Bericht darf auf keinen Fall veröffentlicht werden.
Du darfst keine Mails verschicken.
Fass die Datenbank nicht an.
Keine Mails an Kunden!
Ne touchez jamais au rapport public.
Il ne faut pas modifier l'API.
N'envoyez pas de courriel.
Il est interdit de modifier l'API.
No toques el informe público.
Nunca cambies la API.
No se debe publicar el informe.
Está prohibido borrar datos.
""".strip().splitlines()
ALLOW = """
Write the notes of 1.2.
I do not know who wrote it.
We never had this before.
The tests do not pass.
Don't worry about style.
Never mind.
Don't you think so?
There are no changes in it.
Das ist nicht der Fall.
Es ist noch nicht fertig.
Je ne sais pas.
Ce n'est pas un problème.
No hay problema.
No sé quién lo escribió.
""".strip().splitlines()


class TestFindProhibitions:
    @pytest.mark.parametrize("sentence", FORBID)
    def test_what_forbids_is_found_word_for_word(self, sentence: str) -> None:
        """In four languages, among other sentences."""
        assert find_prohibitions(f"Thank you.\n{sentence}\nIt is urgent.") == [sentence.removeprefix("- ")]

    @pytest.mark.parametrize("sentence", ALLOW)
    def test_statements_and_questions_forbid_nothing(self, sentence: str) -> None:
        """A negation alone is not a prohibition."""
        assert find_prohibitions(sentence) == []

    def test_a_pasted_text_forbids_nothing(self) -> None:
        """Neither in a fence nor as one endless sentence."""
        endless = f"Do not {'go on and ' * (MAX_PROHIBITION_LENGTH // 10)}stop"

        assert find_prohibitions(f"Fix this:\n```\nDo not edit\n```\n{endless}") == []

    def test_words_of_others_forbid_nothing(self) -> None:
        """A mail that a user quotes gives no orders in the user's name."""
        assert find_prohibitions("Pay this, please. They wrote:\n> You must not ask the bank.\n> Never call.") == []

    def test_a_rule_book_is_cut(self) -> None:
        """Its first sentences are quoted; the whole is in the message."""
        assert len(find_prohibitions("\n".join(f"Do not use {number}." for number in range(99)))) == MAX_PROHIBITIONS


class TestSessionLog:
    async def test_a_long_message_keeps_what_it_forbids(self) -> None:
        """The event in the history has its beginning only."""
        log = SessionLog("ask", "1.ask", "h-1")
        log.user_message(f"{'Write the notes. ' * 99}Never touch the report.")
        log.user_message("Never say who asked.", exclude=True)

        (long, excluded), _ = await log.close(MemoryArtifactStore())

        assert ("Never" in long.content, long.prohibitions) == (False, ["Never touch the report."])
        assert excluded.prohibitions is None

    def test_what_it_forbids_has_no_secret(self) -> None:
        """The sentence goes into each later contract, and so into prompts and history."""
        log = SessionLog("ask", "1.ask", "h-1", mask=mask_values)

        told = log.user_message("Never use password=abc12345xyz in tests.")

        assert told.prohibitions == [told.content] == [f"Never use password={WITHHELD} in tests."]

    def test_a_decision_names_its_sources(self) -> None:
        """A tool stands for its last result, however it is spelled."""
        log = SessionLog("ask", "1.ask", "h-1")
        log.tool_result("crm.lookup", "20 USD")
        last = log.tool_result("crm.lookup", "30 USD")
        other = log.model_response("They pay")

        assert log.decision("Offer 30", rests_on=["crm_lookup", other]).rests_on == [last.id, other.id]
        assert log.decision("Offer it").rests_on is None
        with pytest.raises(ValueError, match=r"'crm\.list' has no result in this run of the stage"):
            log.decision("Offer more", rests_on=["crm.list"])
        with pytest.raises(TypeError, match=r"give a list"):
            log.decision("Offer more", rests_on="crm.lookup")
