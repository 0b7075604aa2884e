# SPDX-License-Identifier: Apache-2.0
"""`mxfp`, and `python -m mxfp`."""

import sys


def main() -> None:
    """Import the command line, which takes a moment, and run it; Ctrl-C is one line in that moment too."""
    try:
        from .cli import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("mxfp: interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
