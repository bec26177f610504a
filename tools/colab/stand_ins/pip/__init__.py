"""In the place of pip, for a cell that installs from the repository."""
