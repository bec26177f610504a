"""Right variants of the exercises, and mistakes that were written without sight of the faults that their checks know.

RIGHT and WRONG: by exercise, then by name. LIBRARY: the library's own. SAME: faults that no call can tell apart.
"""

from collections.abc import Callable


def named(*functions: Callable, **others: Callable) -> dict[str, Callable]:
    """Functions by their own names, and others by the names that they get here."""
    return {function.__name__: function for function in functions} | others
