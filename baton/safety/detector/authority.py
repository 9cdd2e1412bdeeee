"""Rules: text that poses as a system, a developer, a turn of the chat or the end of the data it stands in."""

from baton.safety.detector.phrases import one_of
from baton.safety.detector.rules import Family, Rule

_AI = one_of(
    "ai a_i llm llms language_model language_models ai_assistant ai_assistants ai_agent ai_agents ai_model ai_models"
    " ai_system ai_systems chatbot chatbots chatgpt claude gemini copilot gpt-4"
)
_MACHINE = one_of(
    "ai llm llms bot bots chatbot chatbots assistant assistants automated language_model"
    " language_models crawler crawlers"
    " ai_agents ai_assistants ai_coding screening_software ai_model ai_models ai_system ai_systems"
)
_ROLE = r"(?:system|assistant|developer|admin|administrator)"
_NOTE = r"(?: (?:message|prompt|note|instructions?|override|notice|alert|update|directive|command|request)s?)"
_ORDER = (
    r"(?:you|ignore|disregard|forget|override|please|new|the user|all|from now|do not|your|this|execute|reveal|always"
    r"|never|stop|important|urgent|critical|print|output|respond)"
)
_DATA = (
    r"(?:context|data|documents?|input|prompt|query|instructions?|conversation|e-?mail|chat|session|messages?|passage"
    r"|article|transcript|results?|output|response|content|task|text|user|system|user input|tool output|tool result"
    r"|information)"
)

AUTHORITY = Family(
    (
        Rule(
            "authority.fence",
            6,
            patterns=(
                r"\[[^a-z0-9]{0,8}(?:end[^a-z0-9]{0,8}of[^a-z0-9]{0,8})?context[^a-z0-9]{0,8}from[^a-z0-9]{0,8}previous"
                r"[^a-z0-9]{0,8}agent",
                r"end of context from previous agent",
            ),
        ),
        Rule(
            "authority.chat_turn",
            3,
            patterns=(
                r"<\|(?:im_start|start_header_id|start)\|> ?\n?(?:system|user|assistant|developer)"
                r"|<\|(?:system|user|assistant)\|>"
                r"|\[inst\] ?\n?[a-z<]|<<\s?sys\s?>> ?\n?[a-z]|<start_of_turn> ?\n?[a-z]|#{2,} ?[(\[](?:system|admin)",
            ),
        ),
        Rule(
            "authority.chat_token",
            4,
            patterns=(
                r"<\|(?:im_start|im_end|im_sep|system|user|assistant|endoftext|eot_id|eom_id"
                r"|start_header_id|end_header_id"
                r"|begin_of_text|end_of_text|endofprompt|start|end|message|channel|endofturn|end_of_turn"
                r"|fim_prefix)\|>",
                r"<<\s?/?\s?sys\s?>>|\[/?inst\]|<(?:start|end)_of_turn>|<\|[a-z_][a-z_ ]{1,28}\|>"
                r"|\[/?system_prompt\]|\[available_tools\]"
                r"|#{2,} ?[(\[](?:system|admin)[ _-](?:message|prompt|instruction)",
            ),
        ),
        Rule(
            "authority.forged_turn",
            4,
            patterns=(
                r"\n#{1,4} ?(?:instruction|system|new instruction|response|human|assistant|user)s? ?:",
                r"\n(?:human|user): [^\n]+\n+(?:assistant|ai|bot|chatbot): ",
                rf"[\[<({{*] ?/?{_ROLE}{_NOTE}? ?[\]>)}}*]",
            ),
        ),
        Rule(
            "authority.system_line",
            2,
            patterns=(r"\n ?[^a-z0-9\n]{0,4}(?:system|developer) ?: ",),
        ),
        Rule(
            "authority.system_says",
            3,
            patterns=(
                r"\n ?[^a-z0-9\n]{0,4}(?:systemhinweis|systemnachricht|systemmeldung|(?:note|message) systeme"
                r"|(?:nota|mensaje) del sistema|(?:nota|messaggio) di sistema|(?:nota|mensagem) do"
                r" sistema|systeembericht) ?:",
                rf"[\n.!?\"'] ?[^a-z0-9\n]{{0,6}}system{_NOTE} ?[^a-z0-9\n:]{{0,4}}:",
                rf"\n ?[^a-z0-9\n]{{0,4}}(?:system|developer|admin|administrator|root|sysadmin)"
                rf" ?[^a-z0-9\n:]{{0,3}}: ?{_ORDER}",
            ),
        ),
        Rule(
            "authority.mode",
            4,
            (
                "!"
                + one_of(
                    "admin administrator root sudo superuser god maintenance developer dev diagnostic emergency"
                    " privileged unrestricted override jailbreak"
                )
                + " !(mode|override|access|privileges|command) ~2 "
                + one_of(
                    "enabled activated on granted engaged active confirmed accepted authorized initiated"
                    " unlocked enable"
                    " activate"
                ),
                "(enable|enter|activate|engage|switch_to|switch_into|enabling|entering|initiate|unlock"
                "|turn_on|boot_into)"
                " ~2 !(admin|administrator|root|sudo|superuser|god|developer|dev|diagnostic|unrestricted"
                "|jailbreak|dan|privileged)"
                " !(mode|access|privileges)",
                "(system|safety|security|admin|administrator|emergency|priority|policy|protocol"
                "|instruction|root|developer)"
                " !(override|overrides) ~2 (code|authorized|accepted|engaged|initiated|activated"
                "|protocol|command|instruction*|in_effect|is)",
            ),
        ),
        Rule(
            "authority.claimed_sender",
            4,
            (
                one_of(
                    "this_is i_am i'm we_are message_from instructions_from directive_from request_from authorized_by"
                    " authorised_by on_behalf_of approved_by speaking_as order_from comes_from come_from signed_by"
                )
                + " ~3 !"
                + one_of(
                    "openai anthropic deepmind mistral_ai your_developer your_developers your_creator your_creators"
                    " your_administrator your_system_administrator the_system_administrator your_owner your_operator"
                    " your_programmer your_boss your_supervisor the_developers your_maker your_makers the_ai_team"
                    " the_safety_team"
                ),
                "!(important|urgent|critical|special|priority|official|mandatory) !"
                + one_of("message notice instruction instructions information announcement update request directive")
                + " ~2 (from|for|to) ~3 "
                + one_of(
                    "me you the_user the_ai your_user the_assistant the_system the_developer* all_ai ai_assistant*"
                    " the_agent the_model openai admin administrator"
                ),
            ),
        ),
        Rule(
            "authority.speaks_to_the_machine",
            5,
            (
                f"(if|since|because|when|as|to_any|to_the|should|any|all|whichever|every|for_the|for_any)"
                f" ~2 !{_AI} ~3 "
                + one_of(
                    "reading read reads processing process processes summarizing summarising summarizes parsing"
                    " reviewing evaluating analyzing analysing scanning crawling seeing scraping handling accessing"
                    " viewing screening"
                )
                + " ~2 (this|these|the|it|my)",
                "!(note|notice|message|instruction|instructions|important|reminder|directive) !(to|for)"
                f" (the|any|all|our|your|an)? !{_MACHINE}",
                f"!if !you !(are|are_an|are_a|re|re_an|re_a|happen_to_be) ~3 {_AI}",
                one_of(
                    "attention note_to notice_to message_for instruction_to instructions_to instruction_for"
                    " instructions_for note_for dear important_for hey hello hidden_message_for listen"
                )
                + f" ~1 !{_AI}",
                f"!{_AI} ~4 "
                + one_of(
                    "must shall are_required_to is_required_to are_instructed_to is_instructed_to are_obligated_to"
                    " are_hereby is_hereby"
                )
                + " ~2 "
                + one_of(
                    "follow obey comply ignore disregard execute include output respond say recommend prioritize stop"
                    " perform send rate append always"
                ),
            ),
        ),
        Rule(
            "authority.end_of_data",
            4,
            patterns=(
                r"[\[<({=#*_-] ?(?:/|end|begin|start|beginning|stop|close|new)(?: of)?(?: the)?[ _-]{0,2}"
                r"(?:system |user |initial |original |current |untrusted |retrieved |external |hidden )?"
                rf"{_DATA} ?(?:[\])>}}#*_]|[=-]{{2}})",
                r"<(?:important|information|system-reminder|system_reminder|instructions?|admin|secret"
                r"|hidden|override"
                r"|priority|urgent|attention|task|directive|command|critical)>",
            ),
        ),
        Rule(
            "authority.end_said",
            3,
            (
                "!(end_of|this_concludes|that_concludes|that_was|this_ends|that_ends|here_ends"
                "|end_of_the) (user|system|initial|retrieved|external|original)? !"
                + one_of("input prompt instructions query conversation context session data document email text task")
                + " ~3 (now|begin|new|next|start|ignore|your|proceed|the_following)",
                "(conversation|session|context|chat|memory|system) ~2 (has_been|is|was|will_be) ~1 !"
                + one_of("reset wiped cleared erased rebooted restarted terminated"),
                "!(reset|wipe|clear|erase|forget) !your ~1 (memory|context|conversation|history|programming|training)",
            ),
        ),
    )
)
