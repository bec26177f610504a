"""What a student keeps, and the model built from it."""
