"""Write the reference pages: docstrings and their examples, the works they cite, configuration, commands' help."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import run_examples
import yaml
from run_examples import Rows
from sphinx.pycode import ModuleAnalyzer

import dpfl.accounting
from dpfl.catalog import keys
from dpfl.results import COLUMNS

ROOT = Path(__file__).resolve().parents[1]


def write_reference(folder: Path, *, run: bool = True) -> None:
    """Write accounting.md, accounting/, configuration.md, commands.md, references.md and results.md into `folder`.

    Raises ValueError naming the public functions without an example and, if `run`, the examples that do not hold.
    """
    (folder / "accounting").mkdir(parents=True, exist_ok=True)
    examples = {module.__name__: _examples(module) for module in run_examples.modules()}
    problems = list(_problems(examples, run))
    if problems:
        raise ValueError("docs/examples/accounting: " + "\n".join(problems))
    groups = _groups(examples)
    (folder / "accounting.md").write_text(_face(examples, [name for name in groups if name]))
    for name, modules in groups.items():
        lines = [f"# {name or 'Modules'}", "", *(line for module in modules for line in _module(module, examples))]
        (folder / "accounting" / f"{name or 'modules'}.md").write_text("\n".join(lines) + "\n")
    (folder / "configuration.md").write_text(_configuration())
    (folder / "commands.md").write_text(_commands())
    (folder / "references.md").write_text(_bibliography())
    (folder / "results.md").write_text(_results())


def _examples(module: ModuleType) -> dict[str, Rows]:
    """The entries of a module's file; none where there is no file."""
    path = run_examples.EXAMPLES / run_examples.place(module)
    return run_examples.read(path) if path.exists() else {}


def _problems(examples: dict[str, dict[str, Rows]], run: bool) -> Iterator[str]:
    """What is missing, names nothing or, if `run`, does not hold."""
    known = {run_examples.place(sys.modules[name]) for name in examples}
    for path in sorted(run_examples.EXAMPLES.rglob("*.yaml")):
        if path.relative_to(run_examples.EXAMPLES) not in known:
            yield f"{path.name}: there is no such module"
    for name, entries in examples.items():
        missing = list(run_examples.unfilled(sys.modules[name], entries))
        found = missing or (run_examples.wrong(sys.modules[name], entries) if run else ())
        yield from (f"{name}: {problem}" for problem in found)


def _groups(names: Iterable[str]) -> dict[str, list[str]]:
    """The modules by the package that they are in; "" for those in none."""
    groups: dict[str, list[str]] = {"": []}
    for name in names:
        package, _, module = name.removeprefix("dpfl.accounting.").partition(".")
        packaged = module or hasattr(sys.modules[name], "__path__")
        groups.setdefault(package if packaged else "", []).append(name)
    return groups


def _face(examples: dict[str, dict[str, Rows]], packages: list[str]) -> str:
    """The public face, and where the modules are."""
    lines = ["# Accountants", "", _verbatim(dpfl.accounting.__doc__ or ""), ""]
    lines += ["```{toctree}", ":maxdepth: 1", *(f"accounting/{name}" for name in ("modules", *packages)), "```", ""]
    face = {name: getattr(dpfl.accounting, name) for name in dpfl.accounting.__all__}
    titles = {False: "## One call for all samplers", True: "## Samplers, relations, observers"}
    for is_class, title in titles.items():
        lines += [title, ""]
        for name, value in face.items():
            if inspect.isclass(value) is is_class:
                entries = examples[value.__module__]
                kind = "autoclass" if is_class else "autofunction"
                lines += [*_directive(kind, f"dpfl.accounting.{name}"), *_shared(entries, name)]
                lines += _rows(entries, name)
    return "\n".join(lines) + "\n"


def _module(name: str, examples: dict[str, dict[str, Rows]]) -> list[str]:
    """A module's docstring, constants, functions and classes in their order, each with its examples."""
    module, entries = sys.modules[name], examples[name]
    lines = [f"## {name.removeprefix('dpfl.accounting.')}", "", *_directive("automodule", name)]
    lines += _shared(entries)
    analyzer = ModuleAnalyzer.for_module(name)
    constants = [each for scope, each in analyzer.find_attr_docs() if not scope and not each.startswith("_")]
    public = run_examples.members(module)
    for each in sorted([*constants, *public], key=lambda each: analyzer.tagorder.get(each, 0)):
        kind = "autodata" if each in constants else "autoclass" if inspect.isclass(public[each]) else "autofunction"
        options = ["   :members:"] if kind == "autoclass" else []
        lines += [*_directive(kind, f"{name}.{each}", *options), *_rows(entries, each)]
    return lines


def _shared(entries: dict[str, Rows], name: str = "") -> list[str]:
    """The names that the calls share; with `name`, those of them that its calls use."""
    calls = " ".join(call for call, _ in entries.get(name, []))
    rows = [row for row in entries.get("where", []) if not name or re.search(rf"\b{row[0]}\b", calls)]
    if not rows:
        return []
    meanings = [
        f"from {meaning[5:]} import {name}" if meaning.startswith("from ") else f"{name} = {meaning}"
        for name, meaning in rows
    ]
    return ["In the examples", "", "```python", *meanings, "```", ""]


def _rows(entries: dict[str, Rows], name: str) -> list[str]:
    """The table of a member's examples."""
    return run_examples.table(entries[name]) if name in entries else []


def _directive(kind: str, name: str, *options: str) -> list[str]:
    """A Sphinx directive in MyST's fence."""
    return ["```{eval-rst}", f".. {kind}:: {name}", *options, "```", ""]


def _verbatim(text: str) -> str:
    """The text as it stands."""
    return f"```text\n{text.strip()}\n```"


def _configuration() -> str:
    """Every key of the schema: type, default, meaning."""
    schema = yaml.safe_load((ROOT / "src/dpfl/schemas/config.schema.yaml").read_text())
    lines = ["# Configuration", "", f"{schema['description']} The defaults are in `config.yaml`.", ""]
    lines += ["| key | values | default | meaning |", "| --- | --- | --- | --- |"]
    lines += list(_keys(schema, ""))
    return "\n".join(lines) + "\n"


def _keys(schema: dict[str, Any], prefix: str) -> Iterator[str]:
    """A table row for each key below `schema`."""
    for key, entry in schema["properties"].items():
        if "properties" in entry:
            yield from _keys(entry, f"{prefix}{key}.")
            continue
        values = ", ".join(map(str, entry["enum"])) if "enum" in entry else _type(entry)
        default = yaml.safe_dump(entry.get("default"), default_flow_style=True).split("\n")[0]
        yield f"| `{prefix}{key}` | {values} | `{default}` | {entry.get('description', '')} |"


def _type(entry: dict[str, Any]) -> str:
    """The type in words."""
    if "oneOf" in entry:
        return " or ".join(_type(one) for one in entry["oneOf"])
    kind = entry.get("type", "any")
    if isinstance(kind, list):
        return " or ".join(kind)
    return f"list of {_type(entry['items'])}" if kind == "array" else kind


def works() -> dict[str, dict[str, str]]:
    """Return every work that a docstring may cite, by its key: references.yaml, and the papers that are reproduced."""
    package = Path(dpfl.__file__).parent
    papers = {key: yaml.safe_load((package / "papers" / key / "paper.yaml").read_text()) for key in keys()}
    found = yaml.safe_load((package / "references.yaml").read_text(encoding="utf-8")) | papers
    return {key: found[key] for key in sorted(found)}


def _bibliography() -> str:
    """All works, each with the target that a citation of its key leads to."""
    lines = ["# References", "", "The works that docstrings cite, by the keys that they use.", ""]
    for key, work in works().items():
        lines += [
            f"({key})=",
            f"**{key}** {work['authors']}. [{work['title']}]({work['url']}). {work['published']}.",
            "",
        ]
    return "\n".join(lines) + "\n"


def _results() -> str:
    """The module dpfl.results: its functions, each with the columns that it returns."""
    lines = ["# Results as data", "", *_directive("automodule", "dpfl.results")]
    for name in ("tables", "table", "figure", "runs", "claims", "epsilons", "curves", "compare"):
        lines += _directive("autofunction", f"dpfl.results.{name}")
        if columns := COLUMNS.get(name):
            rows = [f"| `{column}` | {meaning} |" for column, meaning in columns.items()]
            lines += ["| column | meaning |", "| --- | --- |", *rows, ""]
    return "\n".join(lines) + "\n"


def findings(readme: str) -> str:
    """Return the generated results of README.md with links that start from docs/; a link to a folder becomes its text.

    A file is linked by MyST's scheme `path:`, because Sphinx does not build pages outside docs/.

    Raises ValueError if README.md lacks the marks around them.
    """
    found = re.search(r"(?<=<!-- results:)[^\n]*-->\n(.*?)<!-- end of results -->", readme, re.DOTALL)
    if not found:
        raise ValueError("README.md has no results between its marks")

    def from_docs(link: re.Match[str]) -> str:
        text, target = link.groups()
        if re.match(r"[a-z]+:", target):
            return link[0]
        return f"[{text}](path:../{target})" if (ROOT / target.partition("#")[0]).is_file() else text

    return re.sub(r"\[([^\]]*)\]\(([^)\s]+)\)", from_docs, found[1])


def _commands() -> str:
    """The help of all commands, as typer writes it."""
    command = [sys.executable, "-m", "typer", "dpfl.cli", "utils", "docs", "--name", "dpfl", "--title", "Commands"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    write_reference(ROOT / "docs" / "reference")
