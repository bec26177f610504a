"""Interactive views: each a Python file and the script of the same name that draws it."""
