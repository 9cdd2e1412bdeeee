"""The stages of the pipeline `contract_review`: what a contract says where, quoted by line."""
