"""Grading: exercise functions out of submitted notebooks, run in processes of their own, judged in
another.
"""
