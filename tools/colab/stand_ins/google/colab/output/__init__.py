"""The switch for widgets of others, which Colab has off until a notebook asks for it."""

from . import _widgets
from ._widgets import enable_custom_widget_manager

__all__ = ["_widgets", "enable_custom_widget_manager"]
