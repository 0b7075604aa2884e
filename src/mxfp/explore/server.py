# SPDX-License-Identifier: Apache-2.0
"""The lessons as one small web server, and a lesson to edit (extra `explore`)."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import webbrowser
from collections.abc import AsyncIterator, Callable
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from .. import __version__
from ..whole import write_whole
from .catalogue import LESSONS, Lesson

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

FIRST_PORT: Final = 2718
"""The port that is tried first where none is asked for, as marimo does."""
_HOME: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>mxfp: lessons</title><link rel="icon" href="data:,"><style>
:root {{ color-scheme: light dark; }}
body {{ font: 1.05rem/1.5 system-ui, sans-serif; max-width: 44rem; margin: 2rem auto; padding: 0 1rem; }}
li {{ margin: 0 0 1rem; padding-left: .4rem; }}
a {{ font-weight: 700; }}
footer {{ opacity: .75; font-size: .9rem; }}
code {{ white-space: nowrap; }}
</style></head><body><main><h1>Numbers of four bits</h1>
<p>A number becomes four bits, thirty-two of them share a scale, a dot product becomes integers, and the
accumulator keeps or loses what it is given. All that these pages show is computed while you look.</p>
<ol>{lessons}</ol></main>
<footer>mxfp {version}. To change a lesson: <code>mxfp explore --edit NAME</code></footer></body></html>"""


def require_marimo() -> None:
    """Raise ImportError naming the extra if marimo or matplotlib is not installed."""
    missing = [name for name in ("marimo", "matplotlib") if find_spec(name) is None]
    if missing:
        raise ImportError(
            f"the lessons need {' and '.join(missing)}; install with: pip install 'mxfp-emulator[explore]'"
        )


def home() -> str:
    """The page that lists the lessons."""
    items = "".join(
        f'<li><a href="/{lesson.name}/">{escape(lesson.title)}</a><br>{escape(lesson.summary)}</li>'
        for lesson in LESSONS
    )
    return _HOME.format(lessons=items, version=escape(__version__))


def application() -> Starlette:
    """The web application: the list of lessons at /, each lesson at /NAME/."""
    import marimo
    from starlette.applications import Starlette
    from starlette.responses import HTMLResponse
    from starlette.routing import Mount, Route

    async def index(request: Request) -> Response:
        return HTMLResponse(home())

    builder = marimo.create_asgi_app(quiet=True)
    for lesson in LESSONS:
        builder = builder.with_app(path=f"/{lesson.name}", root=str(lesson.file))
    lessons: Any = builder.build()

    @contextlib.asynccontextmanager
    async def closing(app: Starlette) -> AsyncIterator[None]:
        """End the sessions with the server: each has a thread that Python would wait for."""
        yield
        for mount in lessons.routes:
            if isinstance(mount, Mount):
                await cast("Any", mount.app).state.session_manager.shutdown()

    return Starlette(routes=[Route("/", index), Mount("/", lessons)], lifespan=closing)


def listen(host: str, port: int | None) -> socket.socket:
    """A socket that listens: on the port asked for, or on the first free one.

    Raises OSError, saying what to do, where there is none.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for tried in [port] if port is not None else [*range(FIRST_PORT, FIRST_PORT + 20), 0]:
        try:
            return socket.create_server((host, tried), family=family, backlog=128)
        except OSError as error:
            why = str(error.strerror).partition(" (while")[0]
    raise OSError(f"cannot listen on {host} port {port or 'any'}: {why}; choose others by --host and --port")


def address(listening: socket.socket, lesson: Lesson | None) -> str:
    """Where a browser finds a lesson, or the list of them; by this machine's name where all may come."""
    host, port = listening.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = socket.gethostname()
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/{f'{lesson.name}/' if lesson else ''}"


def serve(
    lesson: Lesson | None,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    browser: bool = True,
    say: Callable[[str], Any] = print,
) -> None:
    """Serve the lessons until Ctrl-C; `say` is told the address as soon as it answers.

    Connections wait in the socket's queue while marimo is loaded, so the browser starts meanwhile. Nothing is
    fetched from elsewhere: marimo's own files are part of its package.
    """
    require_marimo()
    with listen(host, port) as listening:
        where = address(listening, lesson)
        say(f"lessons at {where} (Ctrl-C ends them)")
        if browser:
            threading.Thread(target=webbrowser.open, args=(where,), daemon=True).start()
        import uvicorn

        config = uvicorn.Config(application(), log_level="error", timeout_graceful_shutdown=1)
        threading.Thread(target=_warm, daemon=True).start()
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listening])


def _warm() -> None:
    """Load what the first lesson would wait for: the rooms, and matplotlib with its fonts."""
    from .. import draw
    from . import accumulator, block, integers, journey, number, page  # noqa: F401

    draw.render(draw.number_line())


def edit(
    lesson: Lesson, folder: Path, *, port: int | None, browser: bool, say: Callable[[str], Any] = print
) -> int:
    """Copy a lesson to `folder`, unless a copy is there, and open it in marimo's editor until Ctrl-C.

    Gives the editor's exit status.
    """
    require_marimo()
    copy = folder / lesson.file.name
    if copy.exists():
        say(f"{copy} is there already; opening it as it is")
    else:
        content = lesson.file.read_bytes()
        write_whole(copy, lambda out: out.write(content))
        say(f"copied the lesson to {copy}")
    command = [sys.executable, "-m", "marimo", "edit", str(copy), "--skip-update-check"]
    command += [] if port is None else ["--port", str(port)]
    command += [] if browser else ["--headless"]
    try:
        return subprocess.run(command, check=False).returncode
    except KeyboardInterrupt:
        return 0
