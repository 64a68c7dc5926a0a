"""The report as one self-contained HTML page with inline SVG plots: no script, no font, nothing from the network."""

from __future__ import annotations

from kvgym.harness.page.document import write_page

__all__ = ["write_page"]
