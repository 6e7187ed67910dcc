"""`python -m dpfl` is `dpfl`."""

from __future__ import annotations

from dpfl.cli import main

main()
