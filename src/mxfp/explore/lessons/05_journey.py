# SPDX-License-Identifier: Apache-2.0
"""Lesson 5: the whole journey."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="The whole journey")


@app.cell
def _():
    import marimo as mo

    from mxfp import draw
    from mxfp.dot import OVERFLOWS
    from mxfp.encode import ROUNDINGS
    from mxfp.explore import accumulator, block, fields, integers, journey, page
    from mxfp.explore.catalogue import lesson_named

    lesson = lesson_named("journey")
    page.heading(lesson)
    return (
        OVERFLOWS,
        ROUNDINGS,
        accumulator,
        block,
        draw,
        fields,
        integers,
        journey,
        lesson,
        mo,
        page,
    )


@app.cell
def _(mo):
    mo.md("""
    Two rows of numbers, every choice, every stage: numbers become codes and scales, codes become
    integers, integers a sum, sums terms, terms one number.

    **Try:** find two choices that change the result, and one that does not. Then a pair of rows for which
    `floor` is nearer to the exact product than `rceil`, and one for which it is the other way round.
    """)
    return


@app.cell
def _(journey, page):
    preset = page.preset(journey.PRESETS)
    preset
    return (preset,)


@app.cell
def _(journey, page, preset):
    start = journey.PRESETS.settings(preset.value)
    page.look(journey.PRESETS, preset.value)
    return (start,)


@app.cell
def _(OVERFLOWS, ROUNDINGS, accumulator, block, mo, page, start):
    text_a = mo.ui.text_area(value=start["a"], label="Row a", rows=2, full_width=True, debounce=page.PAUSE)
    text_b = mo.ui.text_area(value=start["b"], label="Row b", rows=2, full_width=True, debounce=page.PAUSE)
    kind = mo.ui.dropdown(list(block.FORMATS), value=start["format"], label="Format")
    rounding = mo.ui.dropdown(ROUNDINGS, value=start["rounding"], label="Rounding")
    name = mo.ui.dropdown(
        [*accumulator.NAMED, accumulator.REGISTER], value=start["accumulator"], label="Accumulator"
    )
    bits = mo.ui.slider(8, 48, value=start["register"], label="Register: bits", show_value=True)
    lsb = mo.ui.slider(-24, 8, value=start["lsb"], label="unit, 2 to the", show_value=True)
    overflow = mo.ui.dropdown(OVERFLOWS, value=start["overflow"], label="when it is full")
    page.column(text_a, text_b)
    return bits, kind, lsb, name, overflow, rounding, text_a, text_b


@app.cell
def _(block, kind, mo, start):
    rules = block.FORMATS[kind.value].scale_rules
    rule = mo.ui.dropdown(
        rules, value=start["rule"] if start["rule"] in rules else rules[0], label="Scale rule"
    )
    return (rule,)


@app.cell
def _(accumulator, bits, kind, lsb, name, overflow, page, rounding, rule):
    page.column(
        page.row(kind, rule, rounding, name),
        page.row(bits, lsb, overflow) if name.value == accumulator.REGISTER else page.note(""),
    )
    return


@app.cell
def _(block, fields, journey, kind, page, rounding, rule, text_a, text_b):
    typed_a = page.read(fields.numbers, text_a.value, journey.MOST)
    typed_b = page.read(fields.numbers, text_b.value, journey.MOST)
    a, b = journey.sides(typed_a, typed_b, block.FORMATS[kind.value], rule.value, rounding.value)
    return a, b, typed_a, typed_b


@app.cell
def _(a, accumulator, b, bits, lsb, name, overflow, page):
    chosen = accumulator.chosen(name.value, bits.value, lsb.value, overflow.value)
    t = page.read(accumulator.followed, a, b, chosen)
    page.headline(accumulator.headline(t))
    return (t,)


@app.cell
def _(journey, page, t, typed_a, typed_b):
    page.table(journey.stages_table(t, typed_a, typed_b), "In short")
    return


@app.cell
def _(mo, t):
    which = mo.ui.slider(0, max(len(t.terms) - 1, 1), value=0, label="Look at term", show_value=True)
    which if len(t.terms) > 1 else mo.Html("")
    return (which,)


@app.cell
def _(block, page, t, typed_a, typed_b, which):
    term = min(which.value, len(t.terms) - 1)
    part_a = block.part_of(typed_a, t.a, term * t.group)
    part_b = block.part_of(typed_b, t.b, term * t.group)
    page.row(
        page.table(block.elements_table(part_a), "Numbers to codes: a"),
        page.table(block.elements_table(part_b), "Numbers to codes: b"),
    )
    return (term,)


@app.cell
def _(integers, page, t, term):
    page.table(integers.products_table(t, term), "Codes to integers")
    return


@app.cell
def _(mo, start):
    width = mo.ui.slider(
        4,
        24,
        value=start["width"],
        label="Signed bits of the register for a sum",
        show_value=True,
        full_width=True,
    )
    width
    return (width,)


@app.cell
def _(integers, mo, page, t, term, width):
    page.column(
        page.table(integers.register_table(t, width.value, term), "The register for a sum"),
        page.table(integers.tree_table(t, term), "The adder tree"),
        mo.md(integers.term_text(t, term)),
    )
    return


@app.cell
def _(accumulator, page, t):
    page.table(accumulator.steps_table(t), "The accumulator, step by step")
    return


@app.cell
def _(draw, mo, page, t):
    page.picture(draw.accumulators, t.a, t.b, [t.accumulator]) if len(t.terms) > 1 else mo.Html("")
    return


@app.cell
def _(journey, page):
    answers = page.asked(journey.QUESTIONS)
    return (answers,)


@app.cell
def _(answers, journey, page):
    page.marked(journey.QUESTIONS, answers)
    return


@app.cell
def _(lesson, page):
    page.footer(lesson)
    return


if __name__ == "__main__":
    app.run()
