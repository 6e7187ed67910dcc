"""Write the tables of docs/speed.md from what `make bench-peers` printed on each processor, benchmarks/peers_*.jsonl.

make --silent bench-peers > benchmarks/peers_amd.jsonl; python docs/write_speed.py
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MEASURED, PAGE = sorted((ROOT / "benchmarks").glob("peers_*.jsonl")), ROOT / "docs" / "speed.md"
BLOCK = re.compile(r"(?<=<!-- measured -->\n).*?(?=<!-- end of measured -->)", re.DOTALL)
PROGRAMS = {
    "ours": "a job here",
    "ours_alone": "one model here",
    "opacus": "Opacus, hooks",
    "opacus_ghost": "Opacus, ghost clipping",
    "opacus_fast": "Opacus, fast clipping",
    "jax": "JAX, vmap and jit",
    "plain": "SGD without privacy",
}
BFLOAT16 = "_bfloat16"
PROGRAMS |= {f"{name}{BFLOAT16}": f"{title}, bfloat16" for name, title in PROGRAMS.items() if name != "ours_alone"}
OURS = ("ours", f"ours{BFLOAT16}")
MODELS = {
    "scatter_linear": "ScatterNet + linear",
    "scatter_cnn": "ScatterNet + CNN",
    "cnn_tanh": "CNN + tanh",
    "cnn_relu": "CNN + ReLU",
}
AMX_GOAL = 3.0
"""What bfloat16 shall gain for pixel CNNs on colour images, on a processor with AMX."""
IMAGES = {"grey": "28 x 28 grey", "colour": "32 x 32 colour"}


def read(path: Path) -> tuple[dict, list[dict]]:
    """Return what a file was measured on, and a line a model and program."""
    on, *measured = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return on, measured


def tables(files: list[tuple[dict, list[dict]]]) -> str:
    """Return the goals on every processor; then, for each, records a second with ratios and shares of a core's peak."""
    text = "`make bench-peers` exits with 1 if a goal is missed. It does not check the last one.\n\n" + _goals(files)
    for on, measured in files:
        cases = _by_case(measured)
        text += (
            f"\n## {_short(on)}\n\n{on['cpu']} ({', '.join(on['instructions'])}), one thread; Python {on['python']}, "
            f"torch {on['torch']}, Opacus {on['opacus']}, JAX {on['jax']}.\n\n"
            "Records a second of processor time. In brackets: how many times faster a job here is, in the same "
            "precision.\n\n"
            + _in_both(cases, lambda name: "{records_per_second:,.0f}" + ("" if name in OURS else " ({ratio:.2g})"))
            + "\nShare of a core's peak in float32: the operations of one forward and backward pass, over the\n"
            "operations of a large matrix product or convolution in the same time.\n\n"
            + _in_both(cases, lambda _: "{share_of_peak:.0%}").replace("%", " %")
        )
    on, measured = files[0]
    said = f"Peak memory minus memory at rest, MB, on {_short(on)}. A job here holds 18 models (grey) or 3 (colour)."
    return f"{text}\n## Memory\n\n{said}\n\n{_in_both(_by_case(measured), lambda _: '{peak_memory_mb:,.0f}')}"


def _in_both(cases: dict[str, dict[str, dict]], shown: Callable[[str], str]) -> str:
    """Return a table for each precision, of what is shown of each program that was measured."""
    measured = [name for name in PROGRAMS if name in next(iter(cases.values()))]
    single = [name for name in measured if not name.endswith(BFLOAT16)]
    other = [name for name in measured if name.endswith(BFLOAT16)]
    one, two = (_table(cases, {name: shown(name) for name in names}) for names in (single, other))
    return f"In float32:\n\n{one}\nIn bfloat16:\n\n{two}"


def _by_case(measured: list[dict]) -> dict[str, dict[str, dict]]:
    """Return the lines by model and kind of images, then by program."""
    cases: dict[str, dict[str, dict]] = {}
    for each in measured:
        cases.setdefault(each["case"], {})[each["program"]] = each
    return cases


def _short(on: dict) -> str:
    """Return a short name of a processor: its maker, and AMX if it has the tiles."""
    maker = "Intel" if "Intel" in on["cpu"] else on["cpu"].split()[0]
    return f"{maker} with AMX" if "amx_bf16" in on["instructions"] else f"{maker} without AMX"


def _goals(files: list[tuple[dict, list[dict]]]) -> str:
    """Return a Markdown table of our goals: how many times faster a job here shall be, and is on each processor, with
    the models that miss the goal."""
    groups: dict[tuple[str, str, str], list[dict[str, float]]] = {}
    for number, (_, measured) in enumerate(files):
        for each in measured:
            if "target" in each:
                model, _, images = each["case"].rpartition("_")
                key = (each["program"], images, each["target"].removeprefix(">= "))
                groups.setdefault(key, [{} for _ in files])[number][MODELS[model]] = each["ratio"]
    rows = [["a job here over", "images", "models", "goal", *(_short(on) for on, _ in files)]]
    rows.append(["---", "---", "---", "---:", *["---"] * len(files)])
    for (program, images, goal), found in sorted(groups.items(), key=lambda item: list(PROGRAMS).index(item[0][0])):
        models = next(filter(None, found))
        named = "all" if len(models) == len(MODELS) else ", ".join(models)
        rows.append([PROGRAMS[program], IMAGES[images], named, goal, *(_reached(each, float(goal)) for each in found)])
    gains = [_gains(measured) for _, measured in files]
    goals = [AMX_GOAL if "amx_bf16" in on["instructions"] else 0.0 for on, _ in files]
    reached = [_reached(each, goal) + ("" if goal else ", no goal") for each, goal in zip(gains, goals, strict=True)]
    what = "the same job in float32, if it is in bfloat16"
    rows.append([what, IMAGES["colour"], ", ".join(gains[0]), f"{AMX_GOAL:g}", *reached])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _gains(measured: list[dict]) -> dict[str, float]:
    """Return how many times faster bfloat16 makes a job of the pixel CNNs on colour images."""
    speed = {
        (each["case"], each["program"]): each["records_per_second"] for each in measured if "records_per_second" in each
    }
    cases = {"cnn_relu_colour": MODELS["cnn_relu"], "cnn_tanh_colour": MODELS["cnn_tanh"]}
    return {name: speed[case, "ours_bfloat16"] / speed[case, "ours"] for case, name in cases.items()}


def _reached(ratios: dict[str, float], goal: float) -> str:
    """Return the smallest and the largest ratio, and the models below the goal."""
    if not ratios:
        return "not measured"
    ends = dict.fromkeys(f"{each:.2g}" for each in (min(ratios.values()), max(ratios.values())))
    missed = [model for model, ratio in ratios.items() if ratio < goal]
    by = "all" if len(missed) == len(ratios) else ", ".join(missed)
    return " to ".join(ends) + (f" (missed by {by})" if missed else "")


def _table(cases: dict[str, dict[str, dict]], shown: dict[str, str]) -> str:
    """Return a Markdown table, a row a model and kind of images, a column a program."""
    titles = (PROGRAMS[name.removesuffix(BFLOAT16)] for name in shown)
    rows = [["model", "images", *titles], ["---", "---", *["---:"] * len(shown)]]
    for case, found in cases.items():
        model, _, images = case.rpartition("_")
        rows.append([MODELS[model], IMAGES[images], *(text.format(**found[name]) for name, text in shown.items())])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def write_speed() -> None:
    """Put the tables into the page."""
    found = tables([read(path) for path in MEASURED])
    PAGE.write_text(BLOCK.sub(lambda _: found, PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write_speed()
