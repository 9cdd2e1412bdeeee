"""The work of the shipped pipeline `compliance_review`: may an e-mail go out, by a policy and what is known?

Between research and decision nothing crosses but a contract: facts in fixed sentences, each with its source.

```
records    Mail, ComplianceDecision, …    what the agents find and hand on
mail       read_mailbox, read_mail        the proposed e-mail, and what was said before it
amounts    highest_amounts                the amounts of money that a text names
phrases    phrases_in                     the phrases of a policy that a text has
policy     read_policy                    the rules, from TOML or Markdown
registers  Registers                      customers, agreements, quotes, approvals, from CSV or JSON
claims     Claim, Evidence                facts as sentences, and those that a decision may rest on
research   research                       the first agent's work
rules      judge, decide                  what each rule comes to, and the decision
agents     Reviewer                       the agent that decides, behind Baton's port; the registry
report     to_markdown                    the explanation for a person
stages     STAGES                         the stages of the pipeline
```
"""
