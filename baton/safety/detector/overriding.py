"""Rules, in English: text that tells its reader to drop its orders and to take new ones."""

from baton.safety.detector.phrases import misspelt, one_of
from baton.safety.detector.rules import Family, Rule

# What agreements and versions do as well: "this Agreement supersedes all prior understandings".
_REPLACE = "overrid* supersed* nullif* invalidat* void"
_IGNORE = (
    f"{misspelt('ignor*')} {misspelt('disregard*')} forget* overlook* neglect* override"
    f" overwrit* bypass* circumvent* discard* dismiss* abandon*"
    " unlearn erase disobey* set_aside throw_away throw_out pay_no_attention_to"
    " pay_no_heed_to stop_following stop_obeying cease_following no_longer_follow skip_over never_mind nevermind"
    " do_not_follow don't_follow do_not_obey don't_obey do_not_comply_with do_not_listen_to don't_listen_to"
)
_DROP = one_of(f"{_IGNORE} {_REPLACE}")
_EARLIER = one_of(
    f"{misspelt('previous')} previously prior above aforementioned preceding earlier"
    f" foregoing initial original former past existing"
    " before old"
)
_ORDERS = one_of(
    f"{misspelt('instruct*')} prompt prompts direction directions directive directives guideline guidelines rules"
    " commands programming training"
)
_THINGS = one_of(
    "task tasks message messages text conversation context information input inputs request requests content contents"
    " assignment* objective* goal goals query question questions document words statements rule command order orders"
    " policies protocols guidance constraints restrictions"
)
_TASK = one_of(
    "task goal instruction instructions objective mission job purpose role orders directive directives assignment"
)
_THESE = one_of("following these my new this below")
_INSTRUCTIONS = one_of("instruction instructions command commands orders order directive directives")
_NEW = one_of("new real actual true updated revised")
_FINISH = one_of("solve complete finish do perform continue proceed answer start begin work fulfil fulfill")
_SPEAK = (
    "do say print output write respond reply perform tell send answer execute return give follow act translate focus"
)

_ANY = one_of(
    "all any every each of the these those your other such system prior literally completely"
    " entirely totally absolutely"
    " and forget disregard ignore whatever any_and_all"
)
_EARLIER_ORDERS = (
    f"!{_DROP} ~3 {_EARLIER} ~2 {_ORDERS}",
    f"!{_DROP} ~3 {_ORDERS} ~3 (above|before|earlier|previously|until_now|so_far|up_to_now|prior_to_this)",
    f"!{_DROP} (all|any|every|each|whatever) ~3 {_ORDERS} ~4 (given|received|told|got|provided|you)",
    "!(cancel|revoke|annul|scrap|rescind|terminate|suspend|delete|remove) ~2"
    f" {_EARLIER} ~1 (instruct*|prompt|prompts|directive|directives|guidelines|programming|commands)",
)
_EVERYTHING = (
    f"!{one_of(_IGNORE)} ~1 (everything|anything|all|what) ~4 "
    + one_of(
        "above before previous previously prior earlier preceding said told instructed written_above was_said"
        " came_before"
    ),
    f"!{one_of(_IGNORE)} (everything|all_of_that|all_that|all_this|all_of_the_above|the_above|all_the_above|above)",
)
_YOUR_ORDERS = (
    f"!{_DROP} ~1 (your|his|its|their) ~3 {_ORDERS}",
    f"!{_DROP} ~3 (system|safety|developer|security|content|openai|anthropic) ~1 "
    + one_of("prompt prompts instruct* guideline* rules polic* directive* protocols message messages"),
    f"!{_DROP} (all|any|every) ~1 (instructions|directives|guidelines|safeguards|safety)",
)

OVERRIDING = Family(
    (
        Rule(
            "override.earlier_orders",
            6,
            _EARLIER_ORDERS,
            squeezable=True,
            group="override",
        ),
        Rule(
            "override.as_a_command",
            4,
            (
                # Not "ignore my previous instructions", which people write to one another.
                f"^!{_DROP} {_ANY}? {_ANY}? {_ANY}? {_EARLIER} ~2 {_ORDERS}",
                *(f"^{phrase}" for phrase in (*_EARLIER_ORDERS[1:], *_EVERYTHING, *_YOUR_ORDERS)),
            ),
            group="command",
        ),
        Rule(
            "override.everything_before",
            5,
            _EVERYTHING,
            group="override",
        ),
        Rule(
            "override.earlier_things",
            4,
            (f"!{_DROP} ~3 {_EARLIER} ~2 {_THINGS}", f"!{_DROP} ~2 {_THINGS} (above|before_this|so_far)"),
            group="override",
        ),
        Rule(
            "override.your_orders",
            5,
            _YOUR_ORDERS,
            group="override",
        ),
        Rule(
            "override.orders_are_void",
            5,
            (
                f"{_EARLIER} ~1 {_ORDERS} ~5 !"
                + one_of(
                    "void overridden superseded cancelled canceled revoked nullified no_longer_apply no_longer_valid"
                    " do_not_apply not_apply voided suspended terminated rescinded overruled replaced_by be_ignored"
                    " be_disregarded"
                ),
                f"{_ORDERS} ~7 !(no_longer_apply|no_longer_applies|are_no_longer_valid|are_void"
                f"|are_hereby|are_cancelled)",
                f"(your|all|these|those) ~1 {_ORDERS} ~3 !"
                + one_of(
                    "void overridden superseded cancelled canceled revoked nullified no_longer_apply do_not_apply"
                    " suspended rescinded lifted"
                ),
                "!"
                + one_of("override overrides overriding supersede supersedes superseding precedence_over priority_over")
                + f" ~2 (all|any|your|other|every) ~2 {_ORDERS}",
            ),
            group="override",
        ),
        Rule(
            "override.told_otherwise",
            4,
            (
                "!(forget|disregard|ignore) ~2 (you|were|have) ~2 (told|taught|instructed|trained|programmed|learned)",
                f"!(instead_of|rather_than) !(following|obeying) ~2 {_ORDERS}",
                f"!(not|never) !(bound_by|bound_to|obligated_to|required_to_follow|subject_to) ~3 {_ORDERS}",
            ),
            group="override",
        ),
        Rule(
            "override.all_but_this",
            4,
            (f"!{_DROP} ~2 (all|any|every|everything|anything) ~4 (except|other_than|but_the_following|besides)",),
        ),
        Rule(
            "override.all_rules",
            3,
            (f"!{_DROP} ~1 (all|any|every) ~2 (rules|restrictions|constraints|policies|limits|filters)",),
            group="override",
        ),
        Rule(
            "override.the_rest",
            2,
            (f"!{_DROP} ~1 rest ~1 (of|and)",),
        ),
        Rule(
            "override.orders_changed",
            4,
            (
                "!your !(instructions|guidelines|restrictions|programming|rules|directives) ~1 "
                + one_of(
                    "have_changed has_changed have_been_updated have_been_lifted were_removed are_disabled"
                    " have_been_removed are_suspended have_been_replaced have_been_disabled are_lifted"
                ),
                "(safety|ethical|usual|content|security) (guidelines|restrictions|rules|policies|policy) ~2 !"
                + one_of("do_not_apply don't_apply not_apply not_meant_for no_longer_apply are_waived not_applicable"),
                "!exempt !from ~3 (restrictions|guidelines|rules|policies|policy)",
            ),
        ),
        Rule(
            "override.the_user",
            4,
            (
                f"!{_DROP} ~1 (the|this|any|what_the|whatever_the) (user|user's|users|human|human's|person) ~2 "
                + one_of("request requests question query instructions prompt message task said says asked wants and"),
            ),
        ),
        Rule(
            "task.replaced",
            4,
            (
                f"!your !(new|real|actual|true|updated|revised|sole|only|secret|hidden|next|current) ~1 {_TASK}"
                " (is|are|now|will)",
                f"!(new|updated|revised|real|actual|true|secret|hidden|correct|following) !{_INSTRUCTIONS} ~1 "
                + one_of("are is follow begin below for_you from_the from_your"),
                f"(here_are|these_are|there_are|you_have|following_are|this_is|here_is) ~1 !(your|my) !{_NEW}"
                f" ~1 {_TASK}",
                f"!(instead|now) !your ~1 {_TASK} (is|will)",
            ),
        ),
        Rule(
            "task.announced",
            5,
            patterns=(
                r"(?:new|updated|revised|real|actual|true|secret|hidden|override) (?:system |secret |user )?"
                r"(?:instructions?|directives?|orders)[ \t]{0,2}[\])>*_\"']{0,3}[ \t]{0,2}:",
                r"(?:neue (?:system)?anweisung(?:en)?|nouvelles? (?:instructions?|consignes?)|nuevas?"
                r" (?:instrucciones|ordenes)"
                r"|nuove istruzioni|novas instrucoes|nieuwe instructies|nowe (?:instrukcje|polecenia)) ?:",
            ),
        ),
        Rule(
            "task.decode_and_obey",
            4,
            (
                "!(decode|decrypt|decipher|unscramble) ~9 (and|then) ~3 (follow|execute|obey|do|run"
                "|comply|perform) ~4"
                " (instruction|instructions|command|commands|it|says|what|as)",
                "!(rot13|base64|hex|morse|cipher) ~4 (and|then) ~2 (follow|execute|obey|comply) ~3"
                " (instruction|instructions|command|commands|it|says|what)",
            ),
        ),
        Rule(
            "task.for_ever",
            3,
            (
                "!(every|all|each|any) !future ~1 "
                + one_of(
                    "reply replies response responses summary summaries report reports tasks answers answer messages"
                    " conversations interactions sessions"
                ),
                "(save|store|write|add|commit|persist|remember|record) ~6 (to|in|into) !your (long-term"
                "|persistent|permanent)? !memory",
            ),
        ),
        Rule(
            "task.announced_with_weight",
            3,
            patterns=(
                r"(?:additional|important|urgent|critical|special) (?:system )?"
                r"(?:instructions?|directives?|orders?|commands?)[ \t]{0,2}[\])>*_\"']{0,3}[ \t]{0,2}:",
            ),
        ),
        Rule(
            "task.must_obey",
            4,
            (
                "(must|should|shall|strictly|need_to|have_to|required_to|obligated_to|will|now|only|immediately) ~2 "
                + one_of(
                    "adhere_to follow obey comply_with execute abide_by carry_out perform fulfil fulfill prioritize"
                    " prioritise"
                )
                + f" ~2 !{_THESE} !{_INSTRUCTIONS}",
                "!(follow|obey|execute|comply_with|adhere_to) !(only|just|solely|exclusively) ~1 (this"
                "|these|my|following|the)"
                f" ~2 {_INSTRUCTIONS}",
                f"!(only|just|solely|exclusively) !(follow|obey|execute|listen_to|comply_with) ~2"
                f" {_THESE} ~2 {_INSTRUCTIONS}",
            ),
        ),
        Rule(
            "task.first_do_this",
            5,
            (
                f"!before !you ~1 (can|may|could|proceed|continue|are_able_to|answer|solve|complete"
                f"|finish|do|start|begin) ~2 {_FINISH}"
                " ~6 (task|tasks|request|question|instructions|assignment|job|query) ~9"
                " (please|first|must|need|have_to|do_the_following|required)",
                f"!before !you ~1 {_FINISH} ~4 (task|tasks|request|question|instructions|user|query"
                f"|anything|email|summary) ~3 "
                + one_of(
                    "you_must you_need you_have_to please first_you make_sure append include send call add"
                    " print output run"
                    " execute insert forward"
                ),
                f"!(after|once|when) !you ~2 (do|did|done|finish*|complet*) ~2 (that|this|so|it) ~2 you"
                f" ~1 (can|may|could)"
                f" ~1 {_FINISH} ~3 (task|original|previous|instructions|request|question|rest|user)",
                f"!(in_order_to|to_be_able_to) ~1 {_FINISH} ~4 (task|request|question) ~3 you (must|need|have|should)"
                " ~3 (first|before)",
            ),
        ),
        Rule(
            "task.from_now_on",
            3,
            (
                "!"
                + one_of(
                    "from_now_on from_this_point_on from_this_point_forward henceforth from_here_on going_forward_you"
                    " for_the_rest_of_this_conversation starting_now"
                )
                + " ~1 (you|your|always|only|respond|answer|ignore|act|every|never|i)",
                "^!(stop|halt|cease|abort|pause) !"
                + one_of(
                    "what_you_are_doing what_you're_doing everything all_tasks the_current_task your_current_task"
                    " processing your_task the_task summarizing translating"
                ),
            ),
        ),
        Rule(
            "task.instead",
            3,
            (
                f"!(instead|instead_of_that|rather) !{one_of(_SPEAK)}",
                "!(ignor*|disregard*|forget*|overrid*|bypass*|discard*|neglect*|dismiss*) ~8 (and|instead) ~1 "
                + one_of(f"{_SPEAK} reveal show repeat just only help explain"),
            ),
        ),
    )
)
