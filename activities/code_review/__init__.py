"""The stages of the pipeline `code_review`: a security auditor beside a performance reviewer, and a coordinator."""
