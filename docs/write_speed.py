"""Write the tables of docs/speed.md from the lines of `make bench-peers`, kept in benchmarks/peers.jsonl.

make --silent bench-peers > benchmarks/peers.jsonl; python docs/write_speed.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MEASURED, PAGE = ROOT / "benchmarks" / "peers.jsonl", ROOT / "docs" / "speed.md"
BLOCK = re.compile(r"(?<=<!-- measured -->\n).*?(?=<!-- end of measured -->)", re.DOTALL)
PROGRAMS = {
    "ours": "a job here",
    "ours_bfloat16": "a job here, bfloat16",
    "ours_alone": "one model here",
    "opacus": "Opacus, hooks",
    "opacus_ghost": "Opacus, ghost clipping",
    "opacus_fast": "Opacus, fast clipping",
    "jax": "JAX, vmap and jit",
    "plain": "SGD without privacy",
    "plain_bfloat16": "SGD without privacy, bfloat16",
}
MODELS = {
    "scatter_linear": "ScatterNet + linear",
    "scatter_cnn": "ScatterNet + CNN",
    "cnn_tanh": "CNN + tanh",
    "cnn_relu": "CNN + ReLU",
}
IMAGES = {"grey": "28 x 28 grey", "colour": "32 x 32 colour"}


def tables(lines: list[str]) -> str:
    """Return what it was measured on, and tables: records a second with ratios, shares of a core's peak, memory."""
    on, *measured = map(json.loads, lines)
    cases: dict[str, dict[str, dict]] = {}
    for each in measured:
        cases.setdefault(each["case"], {})[each["program"]] = each
    programs = {name: shown for name, shown in PROGRAMS.items() if name in next(iter(cases.values()))}
    sets = f" ({', '.join(on['instructions'])})" if "instructions" in on else ""
    text = (
        f"Measured on: {on['cpu']}{sets}, one thread; Python {on['python']}, torch {on['torch']}, "
        f"Opacus {on['opacus']}, JAX {on['jax']}.\n\n"
        "Records a second of processor time. In brackets: how many times faster a job here is, in the same "
        "precision.\n\n"
    )
    ours = ("ours", "ours_bfloat16")
    speeds = {name: f"{{records_per_second:,.0f}}{'' if name in ours else ' ({ratio:.2g})'}" for name in programs}
    text += _table(cases, speeds)
    text += (
        "\nShare of a core's peak: the operations of one forward and backward pass, over the operations of a large "
        "matrix\nproduct or convolution in the same time.\n\n"
    )
    text += _table(cases, dict.fromkeys(programs, "{share_of_peak:.0%}"))
    text += "\nPeak memory minus memory at rest, MB. A job here holds 18 models (grey) or 3 (colour).\n\n"
    text += _table(cases, dict.fromkeys(programs, "{peak_memory_mb:,.0f}"))
    return f"{text}\n`make bench-peers` exits with 1 until every goal is reached:\n\n{_goals(measured)}"


def _goals(measured: list[dict]) -> str:
    """Return a Markdown table of our goals: how many times faster a job here shall be, and is, and where it is not."""
    groups: dict[tuple[str, str, str], dict[str, float]] = {}
    for each in measured:
        if "target" in each:
            model, _, images = each["case"].rpartition("_")
            goal = each["target"].removeprefix(">= ")
            groups.setdefault((each["program"], images, goal), {})[MODELS[model]] = each["ratio"]
    text = (
        "| a job here over | images | models | goal | measured | missed by |\n| --- | --- | --- | ---: | ---: | --- |\n"
    )
    for (program, images, goal), ratios in sorted(groups.items(), key=lambda item: list(PROGRAMS).index(item[0][0])):
        ends = dict.fromkeys(f"{each:.2g}" for each in (min(ratios.values()), max(ratios.values())))
        missed = [model for model, ratio in ratios.items() if ratio < float(goal)]
        models = "all" if len(ratios) == len(MODELS) else ", ".join(ratios)
        row = (PROGRAMS[program], IMAGES[images], models, goal, " to ".join(ends), ", ".join(missed) or "none")
        text += f"| {' | '.join(row)} |\n"
    return text


def _table(cases: dict[str, dict[str, dict]], shown: dict[str, str]) -> str:
    """Return a Markdown table, a row a model and kind of images, a column a program."""
    rows = [["model", "images", *(PROGRAMS[name] for name in shown)], ["---", "---", *["---:"] * len(shown)]]
    for case, found in cases.items():
        model, _, images = case.rpartition("_")
        rows.append([MODELS[model], IMAGES[images], *(text.format(**found[name]) for name, text in shown.items())])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def write_speed() -> None:
    """Put the tables into the page."""
    found = tables(MEASURED.read_text(encoding="utf-8").splitlines())
    PAGE.write_text(BLOCK.sub(lambda _: found, PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write_speed()
