"""The audit trail: what each stage read, wrote and was made with."""

from __future__ import annotations

ABOUT = (
    "config.yaml", "environment.yml", "requirements.lock", "requirements.hashes", "pyproject.toml", "Makefile",
    "README.md", "LICENSE", "CITATION.cff",
)  # fmt: skip
"""Files at the project's root that a crate packs, where they are there."""
