"""What is shown of a comparison: tables, Markdown, and one self-contained HTML page with its plots."""
