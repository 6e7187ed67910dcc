"""Draw which package of dpfl imports which: `python docs/draw_packages.py` writes docs/packages.svg.

The rows are the layers that `make lint` enforces (pyproject.toml); the arrows come from the imports themselves, read by
grimp, which import-linter installs. An arrow that went up would be red. The picture's description has the rows and the
arrows as text, so that a test can compare them with the imports.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import grimp
import matplotlib.pyplot as plt

ROOT = Path(__file__).parents[1]
DOWN, UP, BOX = "#9aa5b1", "#c0392b", "#2c5f8a"


def layers() -> list[list[str]]:
    """Return the packages of each layer, the highest first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    [contract] = [each for each in settings["tool"]["importlinter"]["contracts"] if each["type"] == "layers"]
    return [[name.strip() for name in row.split("|")] for row in contract["layers"]]


def imports(packages: list[str]) -> list[tuple[str, str]]:
    """Return the pairs (package, imported package)."""
    graph = grimp.build_graph("dpfl")
    found = set()
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            start, end = ((each + ".").split(".")[1] for each in (module, imported))
            if start != end and {start, end} <= set(packages):
                found.add((start, end))
    return sorted(found)


def described(rows: list[list[str]], arrows: list[tuple[str, str]]) -> str:
    """Return the rows and the arrows as text: "cli; results; ...: cli -> papers, ..."."""
    return f"{'; '.join(map(' '.join, rows))}: {', '.join(map(' -> '.join, arrows))}"


def main() -> None:
    """Write docs/packages.svg."""
    plt.rcParams["svg.hashsalt"] = "dpfl"
    rows = layers()
    places = {
        name: ((column - (len(row) - 1) / 2) * 2.6, -depth)
        for depth, row in enumerate(rows)
        for column, name in enumerate(row)
    }
    figure, axes = plt.subplots(figsize=(8, 9))
    arrows = imports(list(places))
    for number, (start, end) in enumerate(arrows):
        color = DOWN if places[end][1] < places[start][1] else UP
        bend = 0.25 if number % 2 else -0.25
        style = {"arrowstyle": "-|>", "color": color, "linewidth": 0.6, "connectionstyle": f"arc3,rad={bend}"}
        axes.annotate("", places[end], places[start], arrowprops={**style, "shrinkA": 12, "shrinkB": 12})
    for name, (x, y) in places.items():
        box = {"boxstyle": "round,pad=0.35", "facecolor": "white", "edgecolor": BOX}
        axes.text(x, y, name, ha="center", va="center", fontsize=9, bbox=box, zorder=3)
    widest = max(abs(x) for x, _ in places.values()) + 1  # an arrow to a box beyond the axes would not be drawn
    axes.set(xlim=(-widest, widest), ylim=(-len(rows) + 0.4, 0.6))
    axes.set_axis_off()
    facts = {"Date": None, "Title": "Which package of dpfl imports which", "Description": described(rows, arrows)}
    figure.savefig(ROOT / "docs" / "packages.svg", bbox_inches="tight", metadata=facts)


if __name__ == "__main__":
    main()
