"""Experiments that more than one lesson or benchmark repeats."""
