"""Builds HTML and SVG as element trees, so that text and attributes are escaped wherever they come from."""

from __future__ import annotations

from typing import Any
from xml.etree.ElementTree import Element, tostring

Child = Element | str | None


def node(tag: str, *children: Child, **attributes: Any) -> Element:
    """Return an element.

    Args:
        tag: element name.
        children: elements and text in order; None is left out.
        attributes: ``class_`` is class and ``stroke_width`` stroke-width; numbers are rounded to 0.1; None is left out.
    """
    element = Element(tag, {_name(key): _text(value) for key, value in attributes.items() if value is not None})
    last: Element | None = None
    for child in children:
        if isinstance(child, str):
            if last is None:
                element.text = (element.text or "") + child
            else:
                last.tail = (last.tail or "") + child
        elif child is not None:
            element.append(child)
            last = child
    return element


def html(root: Element) -> str:
    """Return the document below `root` as HTML."""
    return "<!doctype html>\n" + tostring(root, encoding="unicode", method="html") + "\n"


def _name(key: str) -> str:
    return key.removesuffix("_").replace("_", "-")


def _text(value: Any) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
