# SPDX-License-Identifier: Apache-2.0
"""Lesson 3: a dot product becomes integers."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="A dot product becomes integers")


@app.cell
def _():
    import marimo as mo

    from mxfp import draw
    from mxfp.explore import fields, integers, page
    from mxfp.explore.catalogue import lesson_named

    lesson = lesson_named("integers")
    page.heading(lesson)
    return draw, fields, integers, lesson, mo, page


@app.cell
def _(mo):
    mo.md("""
    Every E2M1 value is a multiple of 0.5. Twice a value is an integer, so the dot product of two blocks
    is a sum of products of small integers, and nothing is rounded before the sum is complete. What
    hardware has to know is how **wide** its adders must be.

    **Try:** take 28 products of 144, set the width to 13, and add one more. What would a test with random
    numbers have found?
    """)
    return


@app.cell
def _(integers, page):
    preset = page.preset(integers.PRESETS)
    preset
    return (preset,)


@app.cell
def _(integers, page, preset):
    start = integers.PRESETS.settings(preset.value)
    page.look(integers.PRESETS, preset.value)
    return (start,)


@app.cell
def _(mo, page, start):
    text_a = mo.ui.text_area(value=start["a"], label="Block a", rows=2, full_width=True, debounce=page.PAUSE)
    text_b = mo.ui.text_area(value=start["b"], label="Block b", rows=2, full_width=True, debounce=page.PAUSE)
    maximal = mo.ui.slider(
        0, 32, value=start["maximal"], label="So many first pairs are 6 · 6", show_value=True, full_width=True
    )
    width = mo.ui.slider(
        8,
        16,
        value=start["width"],
        label="Signed bits of the register for the sum",
        show_value=True,
        full_width=True,
    )
    page.column(text_a, text_b, maximal, width)
    return maximal, text_a, text_b, width


@app.cell
def _(fields, integers, maximal, page, text_a, text_b):
    t = integers.pair(
        page.read(fields.numbers, text_a.value, integers.LANES),
        page.read(fields.numbers, text_b.value, integers.LANES),
        maximal.value,
    )
    return (t,)


@app.cell
def _(integers, page, t):
    page.headline(integers.headline(t))
    return


@app.cell
def _(integers, page, t, width):
    page.table(integers.register_table(t, width.value), "The register for the sum")
    return


@app.cell
def _(integers, page, t):
    page.table(integers.tree_table(t), "The adder tree, level by level")
    return


@app.cell
def _(integers, page, t):
    page.table(integers.products_table(t), "Lane by lane")
    return


@app.cell
def _(integers, mo, t):
    mo.md(integers.term_text(t))
    return


@app.cell
def _(draw, page, t, width):
    page.picture(draw.adder_tree, t.a.codes, t.b.codes, width=width.value)
    return


@app.cell
def _(integers, page):
    answers = page.asked(integers.QUESTIONS)
    return (answers,)


@app.cell
def _(answers, integers, page):
    page.marked(integers.QUESTIONS, answers)
    return


@app.cell
def _(lesson, page):
    page.footer(lesson)
    return


if __name__ == "__main__":
    app.run()
