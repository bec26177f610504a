"""A trained model in one HTML file, which writes in any browser."""
