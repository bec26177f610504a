"""What a cell shows: cards, figures, numbers, source, in one style."""
