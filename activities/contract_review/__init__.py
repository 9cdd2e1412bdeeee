"""The stages of the pipeline `contract_review`: what a contract in text, Markdown or PDF says where, quoted by line.

```
records     Report, Clause, Finding, …    the records of the pipeline
clauses     read_document, extract        a file as lines with page and number; its clauses with topic and lines
rules.toml                                topics and words to look for
rules       locate                        finds and quotes them; judges nothing
report      score, summarise, …           a model's risks by ISO 31000, and the report, each line proved
agents      Extractor, Analyst, …         the four agents
stages      STAGES                        the stages of the pipeline
```
"""
