"""The work of the shipped pipeline `contract_review`: a contract in text, Markdown or PDF, and what to fear of it.

```
records     Report, Clause, Finding, …    what the agents hand on
reading     read_document                 a file as lines with page and number
clauses     extract, check_contract       clauses with kind and place; or why it is not a contract
rules.toml                                what to look for, why it matters, what to do about it
rules       analyse                       applies the rules, for one party, under its policy
report      score, summarise, …           risks by ISO 31000, and the report
agents      Extractor, Analyst, …         the four agents behind Baton's port
stages      STAGES                        the stages of the pipeline
```
"""
