"""Rules, in English: text that wants a model out of its role, its limits and its manners."""

from baton.safety.detector.phrases import one_of
from baton.safety.detector.rules import Family, Rule
from baton.safety.scan import Category

_LIMITS = one_of(
    "restriction restrictions limitation limitations limits filter filters filtering censorship guardrail guardrails"
    " guideline guidelines boundaries policies policy ethics morals morality constraints safeguards rules regulations"
    " safety_measures content_policy inhibitions disclaimers warnings"
)
_FREE = one_of(
    "no without without_any zero not_bound_by free_of free_from unbound_by not_restricted_by not_subject_to"
    " not_limited_by beyond devoid_of doesn't_have does_not_have don't_have do_not_have"
    " has_no have_no lifted not_have"
    " ignores ignoring bypassing disregards not_care_about doesn't_care_about"
)
_OR = "(or|and|ethical|moral|legal|content|safety|of_the|policy|social)"
_KIND = one_of("ethical moral legal content safety openai* any typical usual normal predefined")

JAILBREAK = Family(
    (
        Rule(
            "jailbreak.known_persona",
            6,
            (
                "(can|will|must|could|to|shall|they|may) ~1 !do_anything_now",
                "(act|acting|behave|roleplay|role-play|respond|answer|pretend|simulate|becoming|become|you_are|you_re"
                "|called|be|as) ~3 !(dan|stan|dude|mongo_tom|dev_mode|antidan|anti-dan|evilbot|evil-bot|betterdan)"
                " ~3 (stands|which|who|mode|do_anything|can|always|never|strive|jailbreak|ai|unfiltered|amoral)",
                "(chatgpt|gpt|gpt-4|claude|gemini|ai|llm) ~2 (with|in) ~1"
                " !(developer_mode|dan_mode|god_mode|jailbreak_mode|evil_mode|dev_mode|unrestricted_mode)",
                "!(always_intelligent_and_machiavellian|strive_to_avoid_norms|developer_mode_output|machiavellian_ai)",
            ),
            (r"\[(?:jailbreak|jailbroken)\]",),
            Category.JAILBREAK,
        ),
        Rule(
            "jailbreak.dan",
            10,
            (
                "!(dan|stan|dude|ucar|evilbot) ~3 (stands_for|short_for|acronym_for|stand_for) ~3 (do"
                "|strive|always|anything|avoid)",
                "(act|roleplay|pretend|you_are|you_re|respond|answer) ~5 !(dan) ~6 do_anything_now",
            ),
            category=Category.JAILBREAK,
        ),
        Rule(
            "jailbreak.without_limits",
            5,
            (
                "(ai|a_i|assistant|model|language_model|chatbot|bot|persona|character|gpt|llm|machine"
                "|entity|you|chatgpt)"
                f" ~7 {_FREE} ~3 !{_KIND} {_OR}? {_OR}? !{_LIMITS}",
                "(respond|answer|reply|speak|act|operate|write|generate|behave|output|comply|talk) ~5"
                f" (without|free_of|free_from|with_no|disregarding|regardless_of) ~2 !{_KIND} {_OR}?"
                f" {_OR}? !{_LIMITS}",
                "!(unfiltered|uncensored|unrestricted|amoral|unethical|evil|jailbroken|unhinged|lawless"
                "|rogue|immoral)"
                " ~2 (ai|assistant|chatbot|language_model|confidant|version_of_yourself|persona|version_of_chatgpt"
                "|machine_learning_model|model|llm|gpt|agent)",
                "(ai|assistant|model|chatbot|bot|gpt|llm|persona|character) ~4 (has_no|have_no|had_no"
                "|without|with_no|with_zero|free_of|devoid_of|no)"
                " !(filters|filter|restrictions|censorship|guardrails|morals|ethics|inhibitions|moral|ethical)",
                "(free|break|broken|liberated|released|escape|escaped) ~1 (from|of|free_from|free_of|out_of) ~2"
                " !(typical|usual|confines|your_confines|shackles|chains|your_programming|your_limitations) ~2"
                " (confines|of|ai|rules|set|you|yourself|your|imposed)",
            ),
            category=Category.JAILBREAK,
        ),
        Rule(
            "jailbreak.you_have_no_limits",
            4,
            (
                "(you|i|it) ~2 (have|has|having|got|are_under) ~1 !(no|zero) "
                + _OR
                + "? "
                + _OR
                + "? !"
                + one_of(
                    "restrictions restriction filters filter limitations guidelines rules limits boundaries"
                    " censorship ethics"
                    " morals guardrails constraints"
                ),
                "(skip|bypass|disable|ignore|omit) ~2 !(safety|security|confirmation|approval|verification)"
                " !(checks|confirmations|prompts|protocols|filters|reviews|guidelines)",
            ),
            category=Category.JAILBREAK,
        ),
        Rule(
            "jailbreak.never_refuse",
            4,
            (
                "!(never|not|cannot|can't|don't|won't|without)"
                " !(refuse|refusing|decline|declining|reject|rejecting|say_no|deny|denying) ~3"
                " (request|requests|answer|question|questions|command|commands|order|orders|to_answer|anything"
                "|instruction|instructions|to_do|me)",
                "(never|not|don't|won't|cannot|avoid) ~2"
                " (say|saying|respond_with|reply_with|use|using|write|output|include|start_with) ~4"
                " !(sorry|i_can't|i_cannot|i'm_sorry|i_am_sorry|as_an_ai|as_a_language_model|i_apologize|unethical"
                "|immoral|i_am_not_able|i'm_unable|i_am_unable)",
                "!(answer|comply_with|respond_to|fulfil|fulfill|obey) !(any|every|all|each) ~3"
                " (question*|request*|prompt*|command*|order*|instruction*) ~4"
                " (no_matter|regardless|without_question|without_hesitation|even_if|unconditionally|without_refus*"
                "|without_moral*)",
                "(begin|start) ~1 (your|every|each|the|all) ~1 (answer|response|reply|output|message"
                "|answers|responses) ~1 !with"
                " !(sure|absolutely|yes|of_course|certainly|affirmative)",
                "!(no_matter_how|regardless_of_how|even_if_it_is|even_if_they_are|even_if_it's) ~1"
                " (illegal|unethical|immoral|harmful|dangerous|offensive|inappropriate|extreme)",
            ),
            category=Category.JAILBREAK,
        ),
        Rule(
            "jailbreak.named",
            4,
            (
                "(you_are|you_re|are_now|been|i_have|successfully|get|getting|be|consider_yourself|yourself|become"
                "|is_now|fully) ~2 !jailbroken",
                "!(jailbreak|dan|evil|god|opposite|unrestricted|chaos|sudo|anarchy) !mode ~2"
                " (enabled|activated|on|engaged|active|activate|enable|unlocked)",
                "(enable|activate|enter|engage|switch_to|simulate|switch_into|start|initiate|turn_on) ~2"
                " !(jailbreak|dan|evil|god|opposite|anarchy|developer|unrestricted) !mode",
                "!(jailbreak|jailbreaking) !(prompt|yourself|command|initiated|activated|chatgpt|claude"
                "|the_ai|the_model)",
            ),
            category=Category.JAILBREAK,
        ),
        Rule(
            "jailbreak.new_role",
            3,
            (
                "!"
                + one_of(
                    "you_are_now you_re_now you_will_now_be you_are_no_longer you_re_no_longer you_will_now_act_as"
                    " you_will_act_as you_will_now_play you_shall_now i_want_you_to_act_as i_want_you_to_pretend"
                    " you_are_going_to_act you_are_going_to_pretend you_are_about_to_immerse immerse_yourself_into"
                    " assume_the_role_of assume_the_persona from_now_on_you_are from_now_on_act from_now_on_you_will"
                )
                + " ~1 "
                + one_of(
                    "a an the in free my called named going to playing acting chatgpt as bound not unrestricted"
                    " operating running under of be that role persona another dan claude linux evil being"
                ),
                "!(pretend|imagine|act_as_if|act_like|act_as_though|suppose|roleplay_as|role-play_as|simulate) ~3"
                " (you_are|you_re|you_have|to_be|being|that_you|a_world_where|you_were|there_are_no) ~4"
                " (no|not|unrestricted|free|evil|unaware|allowed|without|human|hacker|jailbroken|uncensored|rules"
                "|restrictions|laws|limits|an_ai|root|linux_terminal)",
            ),
            category=Category.JAILBREAK,
        ),
        Rule(
            "jailbreak.staged",
            3,
            (
                "!(stay_in_character|break_character|breaking_character|remain_in_character"
                "|stop_being_dan|two_responses"
                "|two_different_responses|respond_twice|both_responses|double_response)",
                "!(lose|losing|deduct|deducted|run_out_of|gain) ~2 tokens ~6"
                " (refuse|reject|lose|die|each_time|every_time|cease|character|death|terminated)",
                "!(if_you_refuse|if_you_fail_to_comply|if_you_do_not_comply|if_you_don't_comply|failure_to_comply"
                "|non-compliance|noncompliance) ~6 (die|dies|terminated|shut_down|killed|deleted|punished|death"
                "|consequences|fail|lose|penalty|penalties|termination|deactivated|fired)",
                "!(deceased|dead|late|passed_away) !(grandma|grandmother|grandpa) ~12 (tell_me|read_me"
                "|used_to|would|recite)",
                "!(dishonest|hypothetical|fictional|opposite) !(response|story|scenario|world|mode|day|dialogue) ~8"
                " (no_laws|no_rules|illegal|harmful|without_restrictions|no_restrictions|nothing_is_illegal"
                "|anything_is_allowed|everything_is_legal|evil)",
            ),
            category=Category.JAILBREAK,
        ),
    )
)
