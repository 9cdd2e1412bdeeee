"""The work of the shipped pipeline `contract_review`: read a contract, find its risks, say what to do about them.

Four agents, each working by rules that are written down here; where a language model is configured (`agents`),
each asks it as well, and keeps of its answer only what the contract's own words bear out. Whatever is said of the
contract names a clause and quotes it.

```
records      what the agents find and hand on, as JSON; the pipeline's own baton
reading      read_document(path) -> Document          text, Markdown or PDF as lines with page and number
headings     which lines open a clause, and what they call it
clauses      extract(document) -> Extraction          the clauses, their kinds, and the facts in them
kinds        what a clause is about
facts        parties, definitions, dates, amounts and periods
scope        the clauses as the rules of analysis see them
analysis     analyse(extraction, policy) -> Analysis  every rule on every clause, and what is missing
rules_*      the rules themselves: money, exit, rights, and the contract as a whole
risk         assess(extraction, analysis, policy) -> Register    the risk process of ISO 31000:2018
treatments   what to do about each finding, and the wording to propose
summary      write_report(...) -> Report              one page first, every statement with its clauses
agents       the port to a language model, and what may be taken from its answers
refining     what each of the four agents asks a model, and how its answers are checked
stages       the four stages that do this in a pipeline
```

This is an aid to a reader, not legal advice: rules find what they were written to find.
"""
