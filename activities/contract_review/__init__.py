"""The stages of the pipeline `contract_review`: the risks of a contract in text, Markdown or PDF.

```
records     Report, Clause, Finding, …    the records of the pipeline
reading     read_document                 a file as lines with page and number
clauses     read_document, extract        a file as lines with page and number; its clauses with kind and place
rules.toml                                patterns, reasons and treatments
rules       analyse                       applies the rules, for one party, under its policy
report      score, summarise, …           risks by ISO 31000, and the report
agents      Extractor, Analyst, …         the four agents
stages      STAGES                        the stages of the pipeline
```
"""
