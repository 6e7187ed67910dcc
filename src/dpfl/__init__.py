"""dpfl: five papers on differentially private federated learning, reproduced by one command."""

from __future__ import annotations

__version__ = "0.2.0"
