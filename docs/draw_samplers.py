"""Draw docs/samplers.svg and print the table of docs/privacy.md: what each way to draw batches spends."""

from __future__ import annotations

import math
from pathlib import Path

from dpfl.accounting import BallsInBins, Poisson, ShuffledEpochs, guarantee

RUN = {"noise_multiplier": 1.0072, "steps": 1880, "delta": 1e-5}
SAMPLERS = {
    "balls in bins": BallsInBins(94),
    "Poisson": Poisson(1 / 94),
    "shuffled epochs": ShuffledEpochs(64, 6000),
}
LEFT, WIDTH, ROW = 130, 480, 44


def place(epsilon: float) -> float:
    """Return the x coordinate of an epsilon, on a logarithmic axis from 1 to 100."""
    return LEFT + WIDTH * math.log10(epsilon) / 2


def main() -> None:
    """Write the picture beside this file; print the rows of the table."""
    rows = []
    for row, (name, sampler) in enumerate(SAMPLERS.items()):
        found = guarantee(sampler, **RUN)
        print(f"| {name} | {found.lower:.4g} | {found.upper:.4g} |")
        y, low, high = 30 + row * ROW, place(found.lower), place(found.upper)
        rows.append(
            f'<text x="{LEFT - 10}" y="{y + 5}" text-anchor="end">{name}</text>'
            f'<rect x="{low - 2:.1f}" y="{y - 8}" width="{high - low + 4:.1f}" height="16" fill="#4477aa"/>'
            f'<text x="{high + 8:.1f}" y="{y + 5}">{found.lower:.3g} to {found.upper:.3g}</text>'
        )
    bottom = 30 + len(rows) * ROW
    ticks = "".join(
        f'<line x1="{place(e):.1f}" x2="{place(e):.1f}" y1="10" y2="{bottom - 15}" stroke="#ccc"/>'
        f'<text x="{place(e):.1f}" y="{bottom}" text-anchor="middle">{e}</text>'
        for e in (1, 3, 10, 30, 100)
    )
    middle = LEFT + WIDTH / 2
    title = f'<text x="{middle}" y="{bottom + 20}" text-anchor="middle">epsilon: refuted below, proven above</text>'
    picture = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 {bottom + 30}" font-family="sans-serif" '
        f'font-size="13">{ticks}{"".join(rows)}{title}</svg>\n'
    )
    Path(__file__).with_name("samplers.svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
