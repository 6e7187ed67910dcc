"""Files of claims, format "dpfl-claims/1": JSON that holds one or many claims, each complete.

{"schema": "dpfl-claims/1", "claims": [
  {"name": "Table 2", "sampler": "shuffled_epochs", "batch_size": 64, "records": 6000, "noise_multiplier": 1.0072,
   "steps": 1880, "delta": 1e-5, "epsilon": 2.93, "neighbouring": "zero_out", "observer": "every_step"},
  {"name": "two phases", "delta": 1e-5, "epsilon": 3, "phases": [
    {"sampler": "poisson", "sample_rate": 0.01, "noise_multiplier": 1.2, "steps": 500},
    {"sampler": "full_batch", "noise_multiplier": 40, "steps": 10}]}]}

`neighbouring` (zero_out) and `observer` (every_step) may be left out; `source` may say where the claim is made. For the
observer last_iterate `convex` may state the problem, with the fields of `ConvexProblem`: {"smoothness": 1,
"learning_rate": 0.5, "lipschitz": 1, "strong_convexity": 0.4}.
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from dpfl import accounting
from dpfl.accounting.claims.claim import Claim, sampler_named
from dpfl.accounting.guarantees import Phase
from dpfl.accounting.observer import HidesSteps
from dpfl.errors import InputError

SCHEMA = "dpfl-claims/1"
_RUN = {"noise_multiplier", "steps"}
_SAMPLER = {"sampler", "sample_rate", "batch_size", "records", "steps_per_epoch"}
_CLAIM = {"name", "delta", "epsilon", "neighbouring", "observer", "source", "convex"}


def read_json(path: Path) -> Any:
    """Return the content of a JSON file. Raises InputError, also where a key stands twice in one object.

    Source: elementary.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_without_duplicates)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except RecursionError:
        raise InputError(f"{path} is no JSON file that can be used: it is nested too deeply") from None
    except ValueError as error:
        raise InputError(f"{path} is no JSON file that can be used: {error}") from None


def claims_of(content: Any, path: Path) -> list[Claim]:
    """Return the claims that the content of a claims file holds, in its order.

    Source: the definition of the format, in the module.
    Raises InputError naming the file, the claim and the field.
    """
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise InputError(f'{path} is no file of claims: "schema" should be "{SCHEMA}"')
    entries = content.get("claims")
    if set(content) != {"schema", "claims"} or not isinstance(entries, list) or not entries:
        raise InputError(f'{path} should hold "schema" and "claims", a list of one claim or more, and nothing else')
    claims = []
    for number, entry in enumerate(entries, start=1):
        try:
            claims.append(_claim(entry, number))
        except ValueError as problem:
            raise InputError(f"{path}, claim {number}: {problem}") from None
    return claims


def _claim(entry: Any, number: int) -> Claim:
    """Return one claim. Raises ValueError naming the field."""
    if not isinstance(entry, dict):
        raise ValueError("should be an object")
    parts = entry.get("phases", [{key: entry[key] for key in entry if key in _RUN | _SAMPLER}])
    if not isinstance(parts, list):
        raise ValueError("phases should be a list of objects")
    _only(entry, _CLAIM | ({"phases"} if "phases" in entry else _RUN | _SAMPLER))
    _complete(entry, ("delta", "epsilon"))
    relation = {key: entry[key] for key in ("neighbouring", "observer") if key in entry}
    phases = tuple(_phase(part) for part in parts)
    name = " ".join(str(entry.get("name", number)).split())
    if "convex" in entry:
        relation["convex"] = _convex(entry["convex"])
    return Claim(name, phases, entry["delta"], entry["epsilon"], **relation)


def _convex(part: Any) -> HidesSteps:
    """Return the problem of a claim. Raises ValueError naming the field."""
    known = [field.name for field in fields(accounting.ConvexProblem)]
    if not isinstance(part, dict):
        raise ValueError("convex should be an object")
    _only(part, set(known))
    _complete(part, tuple(known[:3]))
    return accounting.ConvexProblem(**part)


def _phase(part: Any) -> Phase:
    """Return one phase. Raises ValueError naming the field."""
    if not isinstance(part, dict):
        raise ValueError("phases should be a list of objects")
    _only(part, _RUN | _SAMPLER)
    _complete(part, ("sampler", "noise_multiplier", "steps"))
    settings = {key: part[key] for key in part if key in _SAMPLER - {"sampler"}}
    return Phase(sampler_named(part["sampler"], **settings), part["noise_multiplier"], part["steps"])


def _only(entry: dict[str, Any], known: set[str]) -> None:
    """Raise ValueError where a key is none of the format's."""
    for key in entry:
        if key not in known:
            raise ValueError(f"{key!r} is unknown here; known are {', '.join(sorted(known))}")


def _complete(entry: dict[str, Any], needed: tuple[str, ...]) -> None:
    """Raise ValueError where a key is missing."""
    for key in needed:
        if key not in entry:
            raise ValueError(f"{key} is missing")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object whose keys are unique. Raises ValueError naming one that is not."""
    result = dict(pairs)
    if len(result) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key {next(key for key in keys if keys.count(key) > 1)!r} stands twice in one object")
    return result
