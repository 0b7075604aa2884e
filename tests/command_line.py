# SPDX-License-Identifier: Apache-2.0
"""The command line, run in this process: quicker by seconds than a process of its own."""

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from unittest.mock import patch

import pytest
from click.testing import CliRunner

from mxfp import cli


def inside(*arguments):
    """A call that is right -> click's result, with what it printed."""
    return CliRunner().invoke(cli.cli, [str(a) for a in arguments], catch_exceptions=False)


def end_of(*arguments):
    """Any call, through `main` -> its exit status, and what it wrote to standard error."""
    out, err, command = io.StringIO(), io.StringIO(), ["mxfp", *map(str, arguments)]
    streams = redirect_stdout(out), redirect_stderr(err)
    with streams[0], streams[1], patch.object(sys, "argv", command), pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code, err.getvalue()


def one_line(*arguments):
    """A call that is wrong ends in one clear line and exit status 1 -> that line."""
    code, error = end_of(*arguments)
    assert code == 1, error
    (line,) = error.splitlines()
    return line
