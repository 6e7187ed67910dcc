"""Inject faults and count how many were survived, found or refused; exit 1 where one was not. Every draw has a seed.

python tests/faults/inject.py configurations --count 250     configurations through `dpfl run`
python tests/faults/inject.py command_lines  --count 100     arguments of every command
python tests/faults/inject.py mirrors        --count 40      servers and folders that misbehave
python tests/faults/inject.py files          --count 1500    flipped bits and odd files in finished results
python tests/faults/inject.py commands       --count 100     commands that read such results
Kills have their own: make torture.
"""

import argparse
import sys
import tempfile
from importlib import import_module
from pathlib import Path

from harness import report

KINDS = {"configurations": 250, "command_lines": 100, "mirrors": 40, "files": 1500, "commands": 100}


def main() -> None:
    """Inject one kind of fault in a folder that is removed afterwards."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    count = options.count or KINDS[options.kind]
    with tempfile.TemporaryDirectory(prefix="dpfl faults é ") as name:
        folder = Path(name) / "project"
        folder.mkdir()
        inject = import_module(options.kind).inject
        sys.exit(not report(options.kind, inject(count, options.seed, folder)))


if __name__ == "__main__":
    main()
