"""The stages of the pipeline `contract_review`: what a contract in text, Markdown or PDF says where, quoted by line."""
