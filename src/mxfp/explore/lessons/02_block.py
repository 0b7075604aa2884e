# SPDX-License-Identifier: Apache-2.0
"""Lesson 2: thirty-two numbers share a scale."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="Thirty-two numbers share a scale")


@app.cell
def _():
    import marimo as mo

    from mxfp import draw
    from mxfp.encode import ROUNDINGS
    from mxfp.explore import block, fields, page
    from mxfp.explore.catalogue import lesson_named

    lesson = lesson_named("block")
    page.heading(lesson)
    return ROUNDINGS, block, draw, fields, lesson, mo, page


@app.cell
def _(mo):
    mo.md("""
    Four bits reach from 0.5 to 6. To hold other numbers, a block of 32 shares one scale, a power of two:
    the codes are those of number ÷ scale. Which scale it is, is decided by the largest magnitude and a
    **rule**.

    **Try:** take the outlier, and drag the first number down from 96. At which values does the scale
    change? Then compare the rules: which of them saturates, which flushes more?
    """)
    return


@app.cell
def _(block, page):
    preset = page.preset(block.PRESETS)
    preset
    return (preset,)


@app.cell
def _(block, page, preset):
    start = block.PRESETS.settings(preset.value)
    page.look(block.PRESETS, preset.value)
    return (start,)


@app.cell
def _(ROUNDINGS, block, mo, page, start):
    kind = mo.ui.dropdown(list(block.FORMATS), value=start["format"], label="Format")
    rounding = mo.ui.dropdown(ROUNDINGS, value=start["rounding"], label="Rounding")
    values = mo.ui.text_area(
        value=start["values"], label="Numbers of the block", rows=3, full_width=True, debounce=page.PAUSE
    )
    replace = mo.ui.switch(value=start["first"] is not None, label="The slider sets the first number")
    first = mo.ui.slider(
        0, 128, step=0.125, value=start["first"] or 0, label="First number", show_value=True, full_width=True
    )
    page.column(values, page.row(replace), first)
    return first, kind, replace, rounding, values


@app.cell
def _(block, kind, mo, page, rounding, start):
    rules = block.FORMATS[kind.value].scale_rules
    rule = mo.ui.dropdown(
        rules, value=start["rule"] if start["rule"] in rules else rules[0], label="Scale rule"
    )
    page.row(kind, rule, rounding)
    return (rule,)


@app.cell
def _(block, fields, first, kind, page, replace, rounding, rule, values):
    fmt = block.FORMATS[kind.value]
    x = block.with_first(
        page.read(fields.numbers, values.value, fmt.block), float(first.value) if replace.value else None
    )
    made = page.read(block.made, x, fmt, rule.value, rounding.value)
    return fmt, made, x


@app.cell
def _(block, made, page):
    page.headline(block.headline(made))
    return


@app.cell
def _(block, fmt, page, rounding, rule, x):
    page.table(block.rules_table(x, fmt, rounding.value, rule.value), "The scale rules on this block")
    return


@app.cell
def _(block, fmt, page, x):
    page.table(block.exponents_table(x, fmt), "The exponent of the largest magnitude")
    return


@app.cell
def _(block, made, page):
    page.table(block.elements_table(made), "Element by element")
    return


@app.cell
def _(block, draw, fmt, page, rounding, rule, x):
    page.picture(
        draw.block, x, fmt, rule=rule.value, rounding=rounding.value, rng=block.draw_seed(rounding.value)
    )
    return


@app.cell
def _(block, page):
    answers = page.asked(block.QUESTIONS)
    return (answers,)


@app.cell
def _(answers, block, page):
    page.marked(block.QUESTIONS, answers)
    return


@app.cell
def _(lesson, page):
    page.footer(lesson)
    return


if __name__ == "__main__":
    app.run()
