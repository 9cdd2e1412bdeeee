"""The generated documents, one file each: every `write_*` takes the `Material` and returns a page's Markdown."""
