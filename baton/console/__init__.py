"""The web console: runs, their relay and their evidence in a browser, and what people decide there."""
