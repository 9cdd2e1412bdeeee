"""`baton new`: makes projects from the templates in this package, extends them, and upgrades them."""
