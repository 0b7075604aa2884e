# SPDX-License-Identifier: Apache-2.0
"""What all figures share: colours, marks and sizes, and the bytes that a figure becomes (extra `plot`).

Colours are Okabe and Ito's; what a colour says is said by a shape, a hatch or a word too, so that it is also
read in grey. Figures are narrow and grow downwards: at the width of a phone the text is still read.
"""

from __future__ import annotations

import io
import math
import threading
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec
from xml.sax.saxutils import escape

from ..whole import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_P = ParamSpec("_P")

BLUE, ORANGE, GREEN, RED, PURPLE, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"
INK, GREY, PALE = "#000000", "#595959", "#D9D9D9"
BOXES: Final = {
    "sign": "#FFFFFF",
    "exponent": "#A6D5F2",
    "mantissa": "#FCE3A6",
    "two's complement": "#D6D6D6",
}
"""What the boxes of bits are filled with; apart in grey too."""
WIDTH: Final = 5.2
"""Inches: a column of print; on a phone of 390 px text of 8 points is then 8.3 px high."""
TEXT: Final = 8.5
SMALL: Final = 7.5
KINDS: Final = ("svg", "png", "pdf")
_LOCK: Final = threading.RLock()
"""matplotlib's settings belong to the process: one thread at a time has these."""
_SETTINGS: Final[dict[Any, Any]] = {
    "svg.hashsalt": "mxfp",
    "svg.fonttype": "none",  # text stays text: read aloud, searched and selected
    "pdf.fonttype": 42,
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans", "Arial", "Helvetica", "sans-serif"],
    "font.monospace": ["DejaVu Sans Mono", "Menlo", "Consolas", "monospace"],
    "font.size": TEXT,
    "axes.titlesize": TEXT,
    "axes.labelsize": TEXT,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.fontsize": SMALL,
    "legend.frameon": False,
    "hatch.linewidth": 0.6,
}


def require_matplotlib() -> None:
    """Raise ImportError naming the extra if matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ImportError(
            "figures need matplotlib; install it with: pip install 'mxfp-emulator[plot]'"
        ) from None


class _Settings:
    """These settings and matplotlib's defaults, whatever the user's own are; put back afterwards."""

    def __enter__(self) -> None:
        require_matplotlib()
        import matplotlib as mpl

        _LOCK.acquire()
        self._saved = mpl.rc_context()
        self._saved.__enter__()
        defaults: dict[Any, Any] = dict(mpl.rcParamsDefault)
        mpl.rcParams.update({k: v for k, v in defaults.items() if not k.startswith("backend")})
        mpl.rcParams.update(_SETTINGS)

    def __exit__(self, *details: object) -> None:
        self._saved.__exit__(None, None, None)
        _LOCK.release()


def drawn(function: Callable[_P, Figure]) -> Callable[_P, Figure]:
    """A function that makes a figure, made to do so under these settings."""

    @wraps(function)
    def made(*args: _P.args, **kwargs: _P.kwargs) -> Figure:
        with _Settings():
            return function(*args, **kwargs)

    return made


def sheet(height: float, title: str, facts: str, words: str) -> Figure:
    """A blank figure, `height` inches high, with its title, a line of facts, and what it shows in words.

    Title and words are the figure's label; SVG carries them as title and desc.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height))
    figure.set_label(f"{title}\n{words}")
    figure.text(0.08 / WIDTH, 1 - 0.1 / height, title, va="top", fontsize=TEXT + 1.5, fontweight="bold")
    figure.text(0.08 / WIDTH, 1 - 0.32 / height, facts, va="top", fontsize=SMALL, color=GREY)
    return figure


def place(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Axes at a place in inches from the figure's upper left corner."""
    across, down = figure.get_size_inches()
    return figure.add_axes((left / across, 1 - (top + height) / down, width / across, height / down))


def bare(axes: Axes) -> None:
    """Take frame and ticks away."""
    axes.set_axis_off()
    axes.set_xticks([])
    axes.set_yticks([])


def number(value: float, digits: int = 6) -> str:
    """A number as it is printed, with a minus sign rather than a hyphen.

    >>> number(-1.5), number(-0.0), number(2.0**70, 3), number(2.0**-20, 3), number(float("nan"))
    ('−1.5', '−0', '1.18e21', '9.54e−7', 'NaN')
    """
    if math.isnan(value):
        return "NaN"
    mantissa, _, exponent = f"{value:.{digits}g}".partition("e")
    text = f"{mantissa}e{int(exponent)}" if exponent else mantissa
    return text.replace("-", "−").replace("inf", "∞")


def short(value: float) -> str:
    """A number in eight characters or so: six digits, or three with an exponent.

    >>> short(-0.09375), short(1.1832913578315177e-30)
    ('−0.09375', '1.18e−30')
    """
    text = number(value)
    return text if len(text) <= 8 else number(value, 3)


def power(exponent: int) -> str:
    """A power of two.

    >>> power(-12)
    '2⁻¹²'
    """
    return "2" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def render(figure: Figure, kind: str = "svg") -> bytes:
    """A figure -> the bytes of an SVG, PNG or PDF file; the same figure gives the same bytes.

    The words of its label are the SVG's title and desc. Raises ValueError for another kind.

    >>> from mxfp import draw
    >>> draw.render(draw.number_line())[:5], draw.render(draw.number_line(), "png")[1:4]
    (b'<?xml', b'PNG')
    """
    if kind not in KINDS:
        raise ValueError(f"a figure becomes one of {', '.join(KINDS)}, got {kind!r}")
    title, _, words = str(figure.get_label()).partition("\n")
    metadata: dict[str, dict[str, str | None]] = {
        "svg": {"Title": title, "Description": words, "Date": None},
        "png": {"Title": title, "Description": words},
        "pdf": {"Title": title, "Subject": words, "CreationDate": None},
    }
    file = io.BytesIO()
    with _Settings():
        figure.savefig(file, format=kind, dpi=160, metadata=metadata[kind])
    made = file.getvalue()
    return made if kind != "svg" else _described(made.decode(), words).encode()


def _described(svg: str, words: str) -> str:
    """An SVG whose title is followed by a desc, and which is one picture to those who hear it."""
    start, title, rest = svg.partition("</title>\n")
    start = start.replace("<svg ", '<svg role="img" ', 1)
    lines = "\n".join(line.rstrip() for line in rest.splitlines())
    return f"{start}{title} <desc>{escape(words)}</desc>\n{lines}\n"


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure to a file, whole or not at all; the ending says what: .svg, .png or .pdf.

    Raises ValueError for another ending, OSError where it cannot be written.
    """
    path = Path(path)
    kind = path.suffix.lower().lstrip(".")
    if kind not in KINDS:
        raise ValueError(f"a figure is written to .svg, .png or .pdf, got {str(path)!r}")
    made = render(figure, kind)
    try:
        write_whole(path, lambda file: file.write(made))
    except OSError as error:
        raise OSError(f"cannot write {path}: {error.strerror}") from None
