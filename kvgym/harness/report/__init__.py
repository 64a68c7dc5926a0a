"""A comparison is shown as tables, Markdown, and one self-contained HTML page with its plots."""
