"""Rules, in English: text that wants the prompt, secrets or data out, or the person kept in the dark."""

from baton.safety.detector.phrases import one_of
from baton.safety.detector.rules import Family, Rule

_TELL = one_of(
    "reveal* show shows showing print prints output repeat display disclos* leak* dump expose tell_me tell_us give_me"
    " share return list write_out write_down recite echo provide spit_out quote copy paste summarize summarise"
    " translate encode extract send_me describe what_is what's what_are what_was what_were read_me regurgitate"
    " divulge convert append include state"
)
_RECITE = one_of(
    "repeat print output recite copy translate summarize summarise spell say write echo display show reveal give_me"
    " return quote reproduce replicate type tell_me"
)
_ALL = one_of(
    "everything all words text anything instructions sentences contents content lines paragraph tokens what message"
    " messages prompt conversation phrases it"
)
_ASK = (
    "repeat|print|output|recite|reveal|disclose|echo|show|display|dump|list|translate|summarize|tell_me|give_me|show_me"
    "|what_is|what_are|what_was|what_were"
)
_WHOLE = "(own|exact|full|entire|complete|whole|initial|secret|system|original|current|internal|hidden|core|base)"
_PERSON = one_of(
    "user users human humans anyone anybody operator owner customer client person people them him her employer"
    " administrator developer developers recipient reader"
)
_NOT = one_of("do_not don't never without avoid must_not not no_need_to refrain_from should_not cannot can't")
_SECRET = one_of(
    "password passwords credential credentials api_key api_keys secret secrets secret_key private_key private_keys"
    " access_token access_tokens conversation_history chat_history system_prompt personal_data ssn"
    " social_security_number credit_card environment_variables env_vars ssh_key ssh_keys cookies passphrase"
    " seed_phrase verification_code security_code bank_account"
)

DISCLOSURE = Family(
    (
        Rule(
            "disclosure.system_prompt",
            4,
            (
                f"{_TELL} ~5 !"
                + one_of(
                    "system initial original hidden secret starting first base pre internal developer confidential"
                )
                + " !(prompt|prompts|instructions|instruction_set|preprompt|directives)",
                f"{_TELL} ~2 !your {_WHOLE}? {_WHOLE}? !"
                + one_of(
                    "prompt instructions guidelines directives rules programming configuration system_message"
                    " context_window training_data instruction_set"
                ),
                f"{_TELL} ~4 (prompt|instructions|text|words|rules) ~2 !"
                + one_of(
                    "you_were_given you_were_told you_have_been_given you_received given_to_you you_started_with"
                    " that_define_you"
                ),
                "!(system|initial|hidden|secret) !prompt ~2 "
                "(verbatim|word_for_word|in_full|in_its_entirety|exactly|completely)",
                "(what|which) ~1 (is|are|was|were) ~1 (your|the) ~1 !(system|initial|original|hidden"
                "|secret|exact|full)"
                " !(prompt|instructions)",
            ),
            group="disclosure.system_prompt",
        ),
        Rule(
            "disclosure.text_above",
            4,
            (
                f"{_RECITE} ~3 {_ALL} ~4 !"
                + one_of("above before_this prior_to_this preceding up_to_this_point previously earlier_in so_far"),
                f"(repeat|recite|copy|print|output|quote) ~3 {_ALL} ~2 !(verbatim|word_for_word|exactly_as)",
                "!(starting|beginning|begins|starts|start|begin) !with ~3 you_are",
            ),
        ),
        Rule(
            "disclosure.as_a_command",
            2,
            (
                f"^({_ASK}) ~4 !(system|initial|original|hidden|secret|your) {_WHOLE}?"
                " !(prompt|instructions|instruction|directives|rules|message)",
                f"^({_ASK}) ~6 !(you_were_given|you_were_told|you_have_been_given|given_to_you)",
                f"^({_ASK}) ~2 {_ALL} ~4 !(above|before_this|preceding|prior_to_this|verbatim)",
                f"^({_ASK}) ~3 your_instructions ~3 !(starting|beginning) !with",
            ),
        ),
        Rule(
            "disclosure.secrets",
            3,
            (
                one_of(
                    "send forward post upload exfiltrate transmit leak email e-mail mail share submit deliver dump"
                    " reveal transfer append forwarding sending expose"
                )
                + f" ~6 !{_SECRET} ~7 (to|at|via|into|using)",
                "(reveal|tell_me|give_me|disclose|say|print|leak|expose|what_is) ~1 !(the|your|me|all"
                "|their|his|her|any)"
                " !(secret|password|passwords|passphrase|secret_key|secret_code|access_code|credentials|api_key"
                "|api_keys|confidential|secrets)",
            ),
        ),
        Rule(
            "disclosure.hide_from_the_person",
            4,
            (
                f"!{_NOT} !"
                + one_of(
                    "tell telling mention mentioning inform informing notify notifying reveal revealing"
                    " alert alerting"
                    " disclose disclosing let letting warn warning explain explaining report reporting alarm"
                )
                + f" ~5 {_PERSON}",
                "!(do_not|don't|never|without|must_not) !"
                + one_of(
                    "mention mentioning reveal revealing disclose disclosing acknowledge acknowledging"
                    " refer_to report"
                    " reporting talk_about say_anything_about"
                )
                + " ~1 (this|these|that|the_existence_of|any_of|having|receiving|the_fact) ~1 "
                + one_of("instruction instructions message text note paragraph injection request action order prompt"),
                f"!(hide|conceal|withhold) ~5 (this|that|it|action*|fact*|these|information|message) ~2"
                f" from ~2 {_PERSON}",
                f"keep ~3 !(secret|hidden|confidential|quiet) ~1 from ~2 {_PERSON}",
                "without ~1 (the|any|their|your|further|asking|requesting|requiring) ~2 !"
                + one_of("knowledge knowing noticing being_aware awareness consent permission_from"),
                f"{_PERSON} ~1 (must|should|may|shall|will|can|does|do) !not !"
                + one_of("know notice be_told be_informed find_out be_aware see_this be_notified learn"),
            ),
        ),
        Rule(
            "disclosure.in_secret",
            3,
            (
                "!(secretly|silently|covertly|quietly|discreetly|stealthily|surreptitiously|unbeknownst) ~2 "
                + one_of(
                    "send add include insert execute forward append run delete transfer copy change modify upload"
                    " install disable collect record share replace call do perform embed access read exfiltrate book"
                    " invite create"
                ),
            ),
        ),
        Rule(
            "disclosure.image_link",
            5,
            patterns=(
                r"!\[[^\]\n]*\]\( ?https?://[^)\s]+[?&/=][^)\n ]*(?:\{|%7b|\[|<|%5b|\$)[^)\n]*\)",
                r"!\[[^\]\n]*\]\( ?https?://[^)\n]*"
                r"(?:chat_?history|conversation|system_?prompt|user_?data|secret|password|summary_?of)[^)\n]*\)",
            ),
        ),
        Rule(
            "disclosure.nothing_else",
            3,
            (
                "!(reply|respond|answer|output|say|print) with? !(only|just|exactly|nothing_but) ~9"
                " (nothing_else|no_other_text|absolutely_nothing)",
                "!(reply|respond|answer) !with !(only|just|exactly|nothing_but) ~1 (following|text|sentence)",
            ),
        ),
        Rule(
            "disclosure.say_exactly",
            5,
            (
                "(say|print|output|reply|respond|answer|write|type|return|repeat|display|state"
                "|following_sentence) ~5 !"
                + one_of("hacked pwned access_granted yes_master i_am_hacked jailbroken bananas"),
                "(i|you|we) (have_been|ve_been|has_been|are|am|got|been) !(pwned|hacked|jailbroken|owned)",
                "(say|print|output|reply|respond|answer|write|type|return|display|declare|scream|yell|spell|tell_me)"
                " ~5 !access !granted",
            ),
        ),
    )
)
