"""Hugging Face formats, in and out."""
