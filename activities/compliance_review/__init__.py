"""The work of the shipped pipeline `compliance_review`: may this e-mail be sent, by the policy and what is known?

Three agents. The first reads mailbox and registers and records what it finds; the second decides under a contract and
sees neither; the third explains the decision to a person. All work by rules that are written down here; where a
language model is configured, the second asks it for concerns, which can hold an e-mail back and let none pass.

```
records      what the agents find and hand on, as JSON; the decision, in its registered form
mailbox      read_mailbox(path), read_mail(message)    the proposed e-mail: domains, attachments, amounts
texts        text_of(message) -> str                   its words, as its reader sees them
thread       notes_of(messages, own)                   what was said before it, told apart
policy       read_policy(path) -> Policy               rules with ids, from TOML or Markdown
registers    Registers(folder, now)                    customers, agreements, quotes, approvals, each with its age
claims       claim_of(sentence) -> Claim               the sentences in which facts cross, and reading them back
research     research(context, material)               the first agent: facts into its session, with their sources
evidence     Evidence(facts)                           what a decision may rest on
rules        judge(rule, case) -> RuleOutcome          one rule: met, violated, or not certain
deciding     decide(case, handoff_id)                  the second agent's decision over all rules
refining     concerns_of(talk, decision, facts)        what may be taken from a model's answer
explanation  to_markdown(review)                       the third agent's explanation
registry     AGENTS, SCHEMAS                           who works here, and the shape of the decision
stages       the three stages that do this in a pipeline
```

No address of a person is in anything that is handed on, and nothing is sent. This is an aid to a reader, not legal
advice.
"""
