"""`python -m dpfl` is `dpfl`."""

from dpfl.cli import main

main()
