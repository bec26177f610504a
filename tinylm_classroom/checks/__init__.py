"""Checks: which mistake a wrong function looks like."""
