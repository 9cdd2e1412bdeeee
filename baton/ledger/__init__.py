"""The audit ledger: records, hash chains, proofs, stores and the commands on them."""
