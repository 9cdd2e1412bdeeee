"""The work of the shipped pipeline `compliance_review`: may an e-mail go out, by a policy and what is known?

Between research and decision nothing crosses but a contract: facts in fixed sentences, each with its source.

```
records    Mail, ComplianceDecision, …    what the agents find and hand on
mail       read_mailbox, read_mail        the proposed e-mail, and what was said before it
policy     read_policy, Registers         the rules, in TOML; customers and quotes, in CSV
claims     Claim, Evidence                facts as sentences, and those that a decision may rest on
rules      judge, decide                  what each rule comes to, and the decision
agents     research, Reviewer             the research; the agent that decides, behind Baton's port; the registry
report     to_markdown                    the explanation for a person
stages     STAGES                         the stages of the pipeline
```
"""
