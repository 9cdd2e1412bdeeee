"""The stages of the pipeline `compliance_review`: may an e-mail be sent, by a policy and the known facts?

Only a contract passes from the research to the decision: facts in fixed sentences, each with its source.

```
records    Mail, ComplianceDecision, …    the records of the pipeline
mail       read_mailbox, read_mail        the proposed e-mail, and the messages before it
policy     read_policy, Registers         the rules, in TOML; customers and quotes, in CSV
claims     Claim, Evidence                facts as sentences, and the reliable ones
rules      compare, decide                how the facts compare with each rule, and the decision
agents     research, Reviewer             the research, the deciding agent, the registry
report     to_markdown                    the explanation for a person
stages     STAGES                         the stages of the pipeline
```
"""
