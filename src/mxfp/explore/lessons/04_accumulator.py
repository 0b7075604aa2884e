# SPDX-License-Identifier: Apache-2.0
"""Lesson 4: the accumulator keeps it, or loses it."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="The accumulator keeps it, or loses it")


@app.cell
def _():
    import marimo as mo

    from mxfp import draw
    from mxfp.dot import OVERFLOWS
    from mxfp.explore import accumulator, fields, page
    from mxfp.explore.catalogue import lesson_named

    lesson = lesson_named("accumulator")
    page.heading(lesson)
    return OVERFLOWS, accumulator, draw, fields, lesson, mo, page


@app.cell
def _(mo):
    mo.md("""
    Each pair of blocks gives one exact **term**. Adding the terms is the only place where a dot product
    is rounded, and every machine does it in its own way. Here you type the terms; each is a block of its
    own, one number times 1.

    **Try:** move 2048 from the front to the middle, then to the end. Which accumulators notice?
    """)
    return


@app.cell
def _(accumulator, page):
    preset = page.preset(accumulator.PRESETS)
    preset
    return (preset,)


@app.cell
def _(accumulator, page, preset):
    start = accumulator.PRESETS.settings(preset.value)
    page.look(accumulator.PRESETS, preset.value)
    return (start,)


@app.cell
def _(OVERFLOWS, accumulator, mo, page, start):
    typed = mo.ui.text_area(value=start["terms"], label="Terms", rows=2, full_width=True, debounce=page.PAUSE)
    name = mo.ui.dropdown(
        [*accumulator.NAMED, accumulator.REGISTER], value=start["accumulator"], label="Accumulator"
    )
    width = mo.ui.slider(8, 48, value=start["width"], label="Register: bits", show_value=True)
    lsb = mo.ui.slider(-16, 8, value=start["lsb"], label="unit, 2 to the", show_value=True)
    overflow = mo.ui.dropdown(OVERFLOWS, value=start["overflow"], label="when it is full")
    page.column(typed, page.row(name), page.row(width, lsb, overflow))
    return lsb, name, overflow, typed, width


@app.cell
def _(accumulator, fields, lsb, name, overflow, page, typed, width):
    terms = page.read(fields.numbers, typed.value, accumulator.MOST_TERMS)
    a, b = accumulator.blocks_of(terms)
    register = accumulator.chosen(accumulator.REGISTER, width.value, lsb.value, overflow.value)
    chosen = accumulator.chosen(name.value, width.value, lsb.value, overflow.value)
    return a, b, chosen, register, terms


@app.cell
def _(a, accumulator, b, chosen, page):
    t = page.read(accumulator.followed, a, b, chosen)
    page.headline(accumulator.headline(t))
    return (t,)


@app.cell
def _(accumulator, page, terms):
    page.note(accumulator.rounded_away(terms))
    return


@app.cell
def _(a, accumulator, b, page, register):
    page.table(accumulator.contest_table(a, b, register), "The same terms under every accumulator")
    return


@app.cell
def _(accumulator, page, t):
    page.table(accumulator.steps_table(t), "Step by step")
    return


@app.cell
def _(draw, page, t):
    page.picture(draw.accumulators, t.a, t.b, [t.accumulator])
    return


@app.cell
def _(accumulator, page):
    answers = page.asked(accumulator.QUESTIONS)
    return (answers,)


@app.cell
def _(accumulator, answers, page):
    page.marked(accumulator.QUESTIONS, answers)
    return


@app.cell
def _(lesson, page):
    page.footer(lesson)
    return


if __name__ == "__main__":
    app.run()
