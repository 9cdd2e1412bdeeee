"""Names on the wire."""

from baton.wire import names

PUBLISHED = {
    "ATTRIBUTE_PIPELINE": "BatonPipeline",
    "ATTRIBUTE_STAGE": "BatonStage",
    "ATTRIBUTE_STATUS": "BatonStatus",
    "ATTRIBUTE_TASK": "BatonTaskId",
    "ATTRIBUTE_UNTIL": "BatonUntil",
    "A2A_EXTENSION": "urn:baton:a2a:1",
    "ANSWER": "answer",
    "HANDOFF": "handoff",
    "HANDOFF_ANSWER": "handoff_answer",
    "HANDOFF_REFUSED": "HandoffRefused",
    "ARTIFACT_LOST": "ArtifactLost",
    "ROLLED_BACK": "baton.rolled_back",
    "HANDOFF_CHUNK": "handoff_chunk",
    "QUERY_BATON": "baton",
    "QUERY_HISTORY": "history",
    "QUERY_STATUS": "status",
    "QUERY_QUESTIONS": "questions",
    "QUERY_EXPLAIN": "explain",
    "QUERY_DETAILS": "baton_details",
    "QUERY_WAITING": "waiting",
    "MEMO_OUTCOME": "baton_outcome",
    "MEMO_QUESTIONS": "baton_questions",
    "MEMO_TERMS": "baton_terms",
    "MEMO_UNDONE": "baton_undone",
    "FIRST_SEED": "baton_first_seed",
    "FIT": "baton_fit",
    "QUERY_SHOWN": "shown",
    "SEALS": "baton_seals",
    "WAIT_FOR_WORKER": "baton.wait_for_worker",
    "DEFAULT_STORE": ".baton/artifacts",
    "STEER": "steer",
    "CHECK_NOTE": "baton.check_note",
    "MEMO_NOTES": "baton_notes",
    "HAND_OFF": "hand off to ",
    "STREAM_TO": "stream to ",
    "RECEIVE_AS": "receive as ",
    "OUTSIDE": " outside",
}


class TestNames:
    def test_no_name_changes_unnoticed(self) -> None:
        """Runs that are under way, saved searches and other clients use these names: a change breaks them."""
        constants = {name: value for name, value in vars(names).items() if isinstance(value, str) and name.isupper()}

        assert constants == PUBLISHED

    def test_the_search_attributes_are_all_there(self) -> None:
        """Who sets up a server registers exactly those that pipelines write."""
        assert set(names.SEARCH_ATTRIBUTES) == {
            value for name, value in PUBLISHED.items() if name.startswith("ATTRIBUTE_")
        }
