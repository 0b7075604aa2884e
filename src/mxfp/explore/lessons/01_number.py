# SPDX-License-Identifier: Apache-2.0
"""Lesson 1: a number becomes four bits."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="A number becomes four bits")


@app.cell
def _():
    import marimo as mo

    from mxfp.encode import ROUNDINGS
    from mxfp.explore import fields, html, number, page, tables
    from mxfp.explore.catalogue import lesson_named

    lesson = lesson_named("number")
    page.heading(lesson)
    return ROUNDINGS, fields, html, lesson, mo, number, page, tables


@app.cell
def _(mo):
    mo.md("""
    E2M1 has four bits: a sign, two of exponent, one of mantissa. That makes eight magnitudes, 0 0.5 1 1.5
    2 3 4 6, and every other number has to become one of them.

    **Try:** take a preset and read what to look at. Then move x with the slider (or its arrow keys), or
    type any number at all. Can you find a number that becomes 4 under one rounding and 6 under another?
    """)
    return


@app.cell
def _(number, page):
    preset = page.preset(number.PRESETS)
    preset
    return (preset,)


@app.cell
def _(number, page, preset):
    start = number.PRESETS.settings(preset.value)
    page.look(number.PRESETS, preset.value)
    return (start,)


@app.cell
def _(ROUNDINGS, mo, number, page, start):
    element = mo.ui.dropdown(list(number.FORMATS), value=start["format"], label="Format")
    rounding = mo.ui.dropdown(ROUNDINGS, value=start["rounding"], label="Rounding")
    typed = mo.ui.text(
        value=start["typed"], placeholder="instead of the slider", label="Type x", debounce=page.PAUSE
    )
    page.row(element, rounding, typed)
    return element, rounding, typed


@app.cell
def _(element, mo, number, start):
    low, high, step = number.slider(number.FORMATS[element.value])
    slider = mo.ui.slider(low, high, step=step, value=start["x"], label="x", show_value=True, full_width=True)
    slider
    return (slider,)


@app.cell
def _(element, fields, number, page, rounding, slider, typed):
    x = page.read(fields.number, typed.value) if typed.value.strip() else float(slider.value)
    e = page.read(number.encoded, x, number.FORMATS[element.value], rounding.value)
    return e, x


@app.cell
def _(e, html, mo, number, page, tables, x):
    page.column(
        page.headline(f"{tables.shown(x)} → {e.value:g}"),
        mo.Html(html.boxed(html.bits(e) + html.line(e))),
        mo.md(number.story(e)),
    )
    return


@app.cell
def _(e, number, page):
    page.table(number.codes_table(e), "Codes, and what becomes them")
    return


@app.cell
def _(e, number, page, x):
    page.table(number.draws_table(x, e.element), "Many draws") if e.rounding == "stochastic" else None
    return


@app.cell
def _(number, page):
    answers = page.asked(number.QUESTIONS)
    return (answers,)


@app.cell
def _(answers, number, page):
    page.marked(number.QUESTIONS, answers)
    return


@app.cell
def _(lesson, page):
    page.footer(lesson)
    return


if __name__ == "__main__":
    app.run()
