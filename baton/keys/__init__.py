"""The keys of a deployment, and the public keys that verify its signatures."""
