"""Write a Workflow Run RO-Crate: the records of every stage in the vocabulary that other tools read.

Profiles: Process, Workflow and Provenance Run Crate 0.5 (https://w3id.org/ro/wfrun). The crate contains the workflow,
its code and lock file, the configuration, the manifest and everything below results/<scale> that a record names: it can
be run from. Data too large for it are named with their SHA-256, licence and address. Each packed file is a regular file
of the project: a crate is given to others, and a link may lead to what is not meant for them.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocrate.model.computationalworkflow import ComputationalWorkflow
from rocrate.model.contextentity import ContextEntity
from rocrate.rocrate import ROCrate

from dpfl import __version__
from dpfl.data import datasets
from dpfl.errors import InputError
from dpfl.files import has_bytes, is_inside, is_regular, read_bytes, record_path, replacing
from dpfl.grid.configuration import load_mapping
from dpfl.provenance import ABOUT, manifest
from dpfl.provenance.archive import packed
from dpfl.provenance.record import DECIDING, METADATA
from dpfl.provenance.trace import DATA_KINDS, SOURCES, lineage, scale_folder

if TYPE_CHECKING:
    from rocrate.model.entity import Entity

_WFRUN = "https://w3id.org/ro/wfrun/"
_PROFILES = (
    (f"{_WFRUN}process/0.5", "Process Run Crate", "0.5"),
    (f"{_WFRUN}workflow/0.5", "Workflow Run Crate", "0.5"),
    (f"{_WFRUN}provenance/0.5", "Provenance Run Crate", "0.5"),
    ("https://w3id.org/workflowhub/workflow-ro-crate/1.0", "Workflow RO-Crate", "1.0"),
)
_PARAMETER = {"@id": "https://bioschemas.org/profiles/FormalParameter/1.0-RELEASE"}
_LICENCE = "https://spdx.org/licenses/MIT"
_DONE = "http://schema.org/CompletedActionStatus"
_CODE = ("workflow", "src/dpfl", "src/snakemake_logger_plugin_dpfl")
_ENDINGS = {
    ".csv": "text/csv",
    ".gz": "application/gzip",
    ".html": "text/html",
    ".json": "application/json",
    ".md": "text/markdown",
    ".pdf": "application/pdf",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".yaml": "application/yaml",
}
_PASSING = {"__pycache__"}
_NOBODY = "The dpfl authors"


class _Workflow(ComputationalWorkflow):
    """The Snakefile: a workflow with its steps (HowTo), as a Provenance Run Crate requires."""

    TYPES = (*ComputationalWorkflow.TYPES, "HowTo")

    def _empty(self) -> dict[str, Any]:
        return {**super()._empty(), "@type": list(self.TYPES)}


def write(folder: Path) -> tuple[Path, bool]:
    """Write <folder>.crate.zip for results/<scale>; return its path and whether it had to be written.

    The same results give the same bytes; an up-to-date crate is left. Raises InputError where `folder` is not of the
    project here, no record or a damaged one is below it, the manifest does not list them as they are (a stage ran by
    hand, and nothing has checked it), or a file to be packed is a link.
    """
    if not Path("Snakefile").is_file() or scale_folder(folder).parents[1] != Path.cwd():
        raise InputError(f"{folder} is not of a project here: run dpfl crate in its folder, where the Snakefile is")
    path = Path("results", f"{scale_folder(folder).name}.crate.zip")
    described = _described(Path("results", scale_folder(folder).name))
    text = json.dumps(described.crate.metadata.generate(), indent=1, sort_keys=True) + "\n"
    content = packed({METADATA: text.encode()} | dict(sorted(described.members.items())))
    if has_bytes(path, {"bytes": len(content), "sha256": sha256(content).hexdigest()}):
        return path, False
    with replacing(path) as temporary:
        temporary.write_bytes(content)
    return path, True


def _described(folder: Path) -> _Crate:
    """Return the crate of all records below the folder and of the stages before."""
    known = []
    for _, record in lineage(folder, shipped=True):
        if isinstance(record, InputError):
            raise record
        known.append(record)
    manifest.require_current(folder)
    crate = _Crate(folder)
    for record in sorted(known, key=lambda each: (each["started"], each["outputs"][0]["path"])):
        crate.add(record)
    crate.close()
    return crate


@dataclass
class _Crate:
    """A crate that grows record by record; `members` are the files inside, with their content."""

    folder: Path
    crate: ROCrate = field(default_factory=lambda: ROCrate(version="1.1"))
    members: dict[str, bytes] = field(default_factory=dict)
    files: dict[tuple[str, str], Entity] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    tools: dict[str, Entity] = field(default_factory=dict)
    steps: dict[str, Entity] = field(default_factory=dict)
    settings: dict[str, Entity] = field(default_factory=dict)
    actions: list[Entity] = field(default_factory=list)
    controls: list[Entity] = field(default_factory=list)
    times: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Describe the crate, its authors and licence; add the workflow's files."""
        root = self.crate.root_dataset
        root["name"] = f"dpfl, scale {self.folder.name}"
        root["description"] = (
            "Papers on differentially private federated learning, reproduced: run tables, tables, figures and "
            "verdicts, each with the record of what it was made from"
        )
        root["license"] = self._entity(_LICENCE, "CreativeWork", name="MIT License", identifier=_LICENCE)
        self.author = self._entity("#authors", "Organization", name=_first_author())
        root["author"] = self.author
        root["publisher"] = self.author
        self.crate.metadata.extra_contexts.append("https://w3id.org/ro/terms/workflow-run/context")
        root["conformsTo"] = [self._entity(url, "CreativeWork", name=n, version=v) for url, n, v in _PROFILES]
        results = Path("results", self.folder.name)
        shipped = sorted(path for place in (*_CODE, results / SOURCES) for path in Path(place).rglob("*"))
        for path in (*map(Path, ABOUT), results / manifest.MANIFEST, *shipped):
            if os.path.lexists(path) and not _is_folder(path) and not _PASSING & set(path.parts):
                self._include(str(path))

    def add(self, record: dict[str, Any]) -> None:
        """Add one stage's record: what it read, what it wrote, with which settings and software."""
        stage, outputs = record["stage"], record["outputs"]
        if stage not in self.tools:
            self._add_stage(stage, record["source"]["modules"])
        identifier = sha256(outputs[0]["path"].encode()).hexdigest()[:16]
        ended = datetime.fromisoformat(record["started"]).timestamp() + record["seconds"]
        self.times += [record["started"], datetime.fromtimestamp(ended, UTC).isoformat(timespec="seconds")]
        versions = {
            name: record["software"][name] for name in ("python", "dpfl", *DECIDING) if name in record["software"]
        }
        self.versions |= versions
        others = {name: value for name, value in record["software"].items() if name not in versions}
        properties = {"seeds": record["seeds"], "source digest": record["source"]["digest"]}
        properties |= {"commit": record["source"]["commit"], **record["host"], **others, **record["settings"]}
        action = self._entity(
            f"#run-{identifier}",
            "CreateAction",
            name=f"{stage}: {outputs[0]['path']}",
            startTime=record["started"],
            endTime=self.times[-1],
            actionStatus=_DONE,
            instrument=self.tools[stage],
            agent=self.author,
            object=[*map(self._file, record["inputs"]), *(self._setting(*item) for item in sorted(properties.items()))],
            result=[self._result(entry) for entry in outputs],
        )
        self.written |= {entry["path"] for entry in outputs}
        self.actions.append(action)
        control = {"name": f"start {stage}", "instrument": self.steps[stage], "object": action}
        self.controls.append(self._entity(f"#start-{identifier}", "ControlAction", **control))
        own_record = record_path(Path(outputs[0]["path"]))
        if self._is_here(str(own_record)) and is_regular(own_record):
            self._include(str(own_record))

    def close(self) -> None:
        """Add the workflow, its run as a whole, and the engine that ran it."""
        workflow = self._workflow()
        read = [file for (path, _), file in self.files.items() if path not in self.written]
        results = [file for (path, _), file in self.files.items() if path in self.written]
        for side, files in (("input", read), ("output", results)):
            parameter = self._entity(
                f"#{side}", "FormalParameter", name=side, additionalType="File", conformsTo=_PARAMETER
            )
            workflow[side] = [parameter]
            for file in files:
                file["exampleOfWork"] = parameter
        times = {"startTime": min(self.times), "endTime": max(self.times)}
        run = self._entity(
            "#run", "CreateAction", name=f"dpfl, scale {self.folder.name}", actionStatus=_DONE, agent=self.author,
            instrument=workflow, object=read, result=results, **times,
        )  # fmt: skip
        engine = {"name": "Snakemake", "softwareVersion": self.versions.get("snakemake", "")}
        self._entity(
            "#organise", "OrganizeAction", name="Snakemake", agent=self.author, object=self.controls, result=run,
            instrument=self._entity("#snakemake", "SoftwareApplication", **engine), **times,
        )  # fmt: skip
        self.crate.root_dataset["mentions"] = [run, *self.actions]
        self.crate.root_dataset["datePublished"] = max(self.times)

    def _workflow(self) -> Entity:
        """Add the Snakefile with its steps, and the versions that it ran with."""
        properties = {"name": "dpfl", "version": __version__, "license": _LICENCE}
        self.members["Snakefile"] = self._content("Snakefile")
        properties["sha256"] = sha256(self.members["Snakefile"]).hexdigest()
        workflow = self.crate.add_workflow(
            "Snakefile", "Snakefile", main=True, lang="snakemake", properties=properties, cls=_Workflow
        )
        workflow["author"] = self.author
        workflow["hasPart"], workflow["step"] = list(self.tools.values()), list(self.steps.values())
        workflow["softwareRequirements"] = [
            self._entity(f"#software-{name}", "SoftwareApplication", name=name, softwareVersion=version)
            for name, version in sorted(self.versions.items())
        ]
        return workflow

    def _add_stage(self, stage: str, modules: list[str]) -> None:
        """Add a stage as the command that does it and as a step of the workflow."""
        key = stage.replace(" ", "-")
        description = f"dpfl {stage}, done by modules as {', '.join(modules)}"
        properties = {"name": f"dpfl {stage}", "description": description, "softwareVersion": __version__}
        self.tools[stage] = self._entity(f"#stage-{key}", "SoftwareApplication", **properties)
        step = {"position": str(len(self.tools)), "name": stage, "workExample": self.tools[stage]}
        self.steps[stage] = self._entity(f"#step-{key}", "HowToStep", **step)

    def _setting(self, name: str, value: Any) -> Entity:
        """Return the entity of a setting; stages with the same one share it."""
        text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        key = sha256(f"{name}={text}".encode()).hexdigest()[:16]
        if key not in self.settings:
            self.settings[key] = self._entity(f"#setting-{key}", "PropertyValue", name=name, value=text)
        return self.settings[key]

    def _file(self, entry: dict[str, Any]) -> Entity:
        """Return the entity of a file of a record: in the crate, at its public address, or named by its hash.

        The last is also for a file that a stage read in another state: a configuration that named fewer runs, a table
        of noise that was calibrated again for more of them.
        """
        path, digest = entry["path"], entry["sha256"]
        if (path, digest) not in self.files:
            facts = {"name": path, "sha256": digest, "contentSize": str(entry["bytes"])}
            facts |= self._dataset_facts(Path(path))
            address = _public_address(Path(path))
            if self._is_here(path) and has_bytes(Path(path), entry):
                entity = self._include(path)
            elif address:
                entity = self.crate.add_file(address, properties=facts)
            else:
                entity = self._entity(f"#{path}-{digest[:16]}", "CreativeWork", **facts)
            self.files[path, digest] = entity
        return self.files[path, digest]

    def _dataset_facts(self, path: Path) -> dict[str, Any]:
        """Return the dataset that a file of data belongs to; its entity has licence and addresses."""
        name, kind = path.parent.name, path.parent.parent.name
        if kind not in DATA_KINDS or name not in datasets.names():
            return {}
        entry = datasets.load(name)
        address = entry.licence_url or f"#licence-{name}"
        licence = self._entity(address, "CreativeWork", name=entry.licence, identifier=address)
        facts = {"name": entry.title, "license": licence, "description": entry.note or f"dataset {name}"}
        urls = [url for file in entry.files for url in file.urls]
        whole = self._entity(f"#dataset-{name}", "CreativeWork", **facts, **({"url": urls} if urls else {}))
        return {"license": licence, "about": whole}

    def _result(self, entry: dict[str, Any]) -> Entity:
        """Return the entity of a file that a stage wrote; raises InputError where it is another one now."""
        path, entity = entry["path"], self._file(entry)
        if self._is_here(path) and entity.id != path:
            raise InputError(f"{path} is not what its record says; see dpfl audit {self.folder}")
        return entity

    def _is_here(self, path: str) -> bool:
        """Return whether a file belongs to this scale's results and is there."""
        return path.startswith(f"results/{self.folder.name}/") and Path(path).exists()

    def _content(self, path: str) -> bytes:
        """Return the content of a file to be packed; raises InputError if it is not a regular file there."""
        if not is_inside(Path(path), Path(), Path("results", self.folder.name)):
            raise InputError(
                f"{path} is not a regular file of the project (a link may lead anywhere): put the file there"
            )
        return read_bytes(Path(path))

    def _include(self, path: str) -> Entity:
        """Add a file to the crate, and return its entity."""
        content = self.members[path] = self._content(path)
        facts = {"name": path, "sha256": sha256(content).hexdigest(), "contentSize": str(len(content))}
        facts["encodingFormat"] = _ENDINGS.get(Path(path).suffix, "text/plain")
        return self.crate.add_file(path, path, properties=facts)

    def _entity(self, key: str, kind: str, /, **properties: Any) -> Entity:
        """Add an entity that is no file."""
        return self.crate.add(ContextEntity(self.crate, key, {"@type": kind, **properties}))


def _is_folder(path: Path) -> bool:
    """Return whether a path is a folder, and no link to one."""
    return path.is_dir() and not path.is_symlink()


def _first_author() -> str:
    """Return the first author of CITATION.cff."""
    citation = Path("CITATION.cff")
    if not is_regular(citation):
        return _NOBODY
    authors = load_mapping(citation).get("authors")
    is_list = isinstance(authors, list) and authors and isinstance(authors[0], dict)
    return str(authors[0].get("name", _NOBODY)) if is_list else _NOBODY


def _public_address(path: Path) -> str | None:
    """Return the address of a raw file, or None where the file is none."""
    dataset, file = path.parent.name, path.name
    if path.parent.parent.name != "raw" or dataset not in datasets.names():
        return None
    return next((each.urls[0] for each in datasets.load(dataset).files if each.file == file and each.urls), None)
