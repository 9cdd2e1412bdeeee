"""Projects of one's own: made from the templates in this package, extended, and brought up to date."""
