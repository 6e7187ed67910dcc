"""A trace as a picture: a column a stage, raw data at the left, the file asked for at the right."""

from __future__ import annotations

from pathlib import Path

from dpfl.errors import InputError
from dpfl.files import replacing
from dpfl.provenance.trace import Node

_MOST_IN_A_COLUMN = 12
_WIDTH, _HEIGHT = 3.1, 0.55


def draw(top: Node, path: Path) -> None:
    """Draw the tree below `top` to `path`, .svg or .png; raises InputError for another ending."""
    if path.suffix not in (".svg", ".png"):
        raise InputError(f"--picture {path} must end in .svg or .png")
    from dpfl.reporting import style

    columns, edges = _layers(top)
    places = {
        name: (-depth * (_WIDTH + 0.9), (row - (len(names) - 1) / 2) * -(_HEIGHT + 0.25))
        for depth, names in columns.items()
        for row, name in enumerate(names)
    }
    with style.house():
        tall = max(map(len, columns.values()))
        size = (len(columns) * (_WIDTH + 0.9), max(2.0, tall * (_HEIGHT + 0.25) + 0.6))
        figure, axes = style.panels(width=size[0], height=size[1])
        axes.set_axis_off()
        axes.grid(False)
        for start, end in sorted(edges):
            (x, y), (to_x, to_y) = places[start], places[end]
            axes.plot([x + _WIDTH, to_x], [y, to_y], color=style.BLACK, linewidth=0.6, linestyle="-", zorder=1)
        for name, (x, y) in places.items():
            box = {"boxstyle": "round,pad=0.35", "facecolor": "#f2f6fa", "edgecolor": style.BLUE, "linewidth": 0.8}
            axes.text(x + _WIDTH / 2, y, name, ha="center", va="center", fontsize=6, bbox=box, zorder=2)
        axes.set_xlim(min(x for x, _ in places.values()) - 0.3, _WIDTH + 0.3)
        with replacing(path) as temporary:
            style.save(figure, temporary, path.suffix[1:])


def _layers(top: Node) -> tuple[dict[int, list[str]], set[tuple[str, str]]]:
    """Return the labels of each column, by distance from the file asked for, and the edges between labels."""
    depth: dict[str, int] = {}
    labels: dict[str, str] = {}
    pairs: set[tuple[str, str]] = set()

    def visit(node: Node, level: int) -> None:
        depth[node.path] = max(level, depth.get(node.path, 0))
        labels[node.path] = _label(node)
        for child in node.made_from:
            pairs.add((child.path, node.path))
            visit(child, level + 1)

    visit(top, 0)
    # A stage stands left of everything that was made from it, also of what names it only as "see above".
    for _ in depth:
        for child, parent in pairs:
            depth[child] = max(depth[child], depth[parent] + 1)
    columns: dict[int, list[str]] = {}
    for path, level in depth.items():
        columns.setdefault(level, []).append(path)
    for level, paths in columns.items():
        if len(paths) > _MOST_IN_A_COLUMN:
            rest = paths[_MOST_IN_A_COLUMN - 1 :]
            labels |= dict.fromkeys(rest, f"and {len(rest)} more files")
        columns[level] = list(dict.fromkeys(labels[path] for path in paths))
    return columns, {(labels[child], labels[parent]) for child, parent in pairs}


def _label(node: Node) -> str:
    """Return what stands in a node's box."""
    parts = Path(node.path).parts
    name = "/".join(parts[-2:]) + (f" + {len(node.others)}" if node.others else "")
    stage = node.record["stage"] if node.record else "no record here"
    runs = f", {len(node.runs)} runs" if node.runs else ""
    return f"{name}\n{stage}{runs}, sha256 {node.sha256[:8]}"
