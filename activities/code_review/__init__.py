"""The stages of the pipeline `code_review`: a security auditor beside a performance reviewer, and a coordinator.

The source is read once; nothing in it is executed and its configuration is ignored. Every finding names its file
and line, unanalysed files are listed, and findings that a comment in the source suppresses are marked.
"""
