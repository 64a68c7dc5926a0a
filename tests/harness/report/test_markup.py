from __future__ import annotations

from kvgym.harness.report.drawing.markup import html, node


def test_html__escapes_text_and_attributes():
    root = node("p", "<script>&", node("b", "x"), "</p>", None, title='"><img src=x>', class_="a", data_x=1.25)
    assert html(root) == (
        "<!doctype html>\n"
        '<p title="&quot;&gt;<img src=x&gt;" class="a" data-x="1.2">&lt;script&gt;&amp;<b>x</b>&lt;/p&gt;</p>\n'
    )


def test_node__text_goes_where_it_stands_and_none_is_left_out():
    root = node("p", "a", "b", node("br"), "c", node("i"), "d", hidden=None, width=3.0)
    assert html(root) == '<!doctype html>\n<p width="3">ab<br>c<i></i>d</p>\n'
