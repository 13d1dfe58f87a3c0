"""What every figure with controls has in common: who shows widgets gets them, all others the first figure.

Floor 3, room `viz`. Core ipywidgets only (7.7 or later).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class WithWidget:
    """A figure behind controls. A subclass has `widget()`, and `_shown`: its first figure by MIME type."""

    _shown: Mapping[str, str]

    def widget(self) -> Any:
        """A new ipywidgets box; ImportError where there are no ipywidgets."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self._shown["text/plain"]

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        """The widget for front ends that show widgets, the first figure for all others."""
        bundle = dict(self._shown)
        try:
            widget = self.widget()
        except ImportError:
            return bundle
        view = {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}
        return {"application/vnd.jupyter.widget-view+json": view} | bundle
