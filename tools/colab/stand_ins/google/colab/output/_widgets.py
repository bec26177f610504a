"""Where anywidget looks for the address of the widget manager."""

_installed_url: str | None = None


def enable_custom_widget_manager() -> None:
    """Turn the widget manager on: from here on anywidget names it next to each of its views."""
    global _installed_url
    _installed_url = "https://manager.test/manager.min.js"
