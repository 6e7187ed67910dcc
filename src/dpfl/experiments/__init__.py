"""Experiments: what an entry of a grid trains, a module or package each; protocol.py is their contract."""
