"""Sixth paper of the tests: the smallest that has every part."""
