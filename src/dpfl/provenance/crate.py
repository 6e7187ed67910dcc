"""A run as a Workflow Run RO-Crate: the records of every stage in the words that other tools read.

Profiles: Process, Workflow and Provenance Run Crate 0.5 (https://w3id.org/ro/wfrun). The crate holds the workflow, the
configuration and everything below results/<scale> that a record names; data too large to go along are named with their
SHA-256, raw files by the address that they came from.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml
from rocrate.model.contextentity import ContextEntity
from rocrate.rocrate import ROCrate

from dpfl import __version__
from dpfl.data import sources
from dpfl.errors import InputError
from dpfl.files import replacing
from dpfl.provenance.trace import lineage

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
_WORKFLOW = ("Snakefile", "config.yaml", "environment.yml", "README.md", "LICENSE", "CITATION.cff")


def write(folder: Path) -> Path:
    """Write <folder>.crate.zip for results/<scale> and return its path; run it where the Snakefile lies.

    Raises InputError where there is no record below `folder`.
    """
    known = []
    for _, record in lineage(folder):
        if isinstance(record, InputError):
            raise record
        known.append(record)
    crate = _Crate(folder)
    for record in sorted(known, key=lambda each: (each["started"], each["outputs"][0]["path"])):
        crate.add(record)
    crate.close()
    path = folder.with_name(f"{folder.name}.crate.zip")
    with replacing(path) as temporary:
        # rocrate appends .zip to any other name
        zipped = Path(crate.crate.write_zip(temporary.with_suffix(".zip")))
        zipped.replace(temporary)
    return path


@dataclass
class _Crate:
    """A crate that grows record by record."""

    folder: Path
    crate: ROCrate = field(default_factory=lambda: ROCrate(version="1.1"))
    files: dict[str, Any] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    tools: dict[str, Any] = field(default_factory=dict)
    steps: dict[str, Any] = field(default_factory=dict)
    actions: list[Any] = field(default_factory=list)
    controls: list[Any] = field(default_factory=list)
    times: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        citation = yaml.safe_load(Path("CITATION.cff").read_text(encoding="utf-8"))
        root = self.crate.root_dataset
        root["name"] = f"dpfl, scale {self.folder.name}: {citation['title']}"
        root["description"] = (
            "Run tables, tables, figures and verdicts on five papers, with the provenance of each file"
        )
        root["license"] = self._entity(_LICENCE, "CreativeWork", name="MIT License", identifier=_LICENCE)
        self.author = self._entity("#authors", "Organization", name=citation["authors"][0]["name"])
        root["author"] = self.author
        root["publisher"] = self.author
        self.crate.metadata.extra_contexts.append("https://w3id.org/ro/terms/workflow-run/context")
        root["conformsTo"] = [self._entity(url, "CreativeWork", name=n, version=v) for url, n, v in _PROFILES]
        for name in _WORKFLOW[1:]:
            self.crate.add_file(name, name, properties={"name": name})
        for path in sorted(Path("workflow").rglob("*.*")):
            self.crate.add_file(path, str(path), properties={"name": path.name})

    def add(self, record: dict[str, Any]) -> None:
        """Add one stage's record: what it read, what it wrote, with which settings and software."""
        stage, outputs = record["stage"], record["outputs"]
        if stage not in self.tools:
            key = stage.replace(" ", "-")
            description = f"dpfl {stage}: {', '.join(record['source']['modules'])}"
            properties = {"name": f"dpfl {stage}", "description": description, "softwareVersion": __version__}
            self.tools[stage] = self._entity(f"#stage-{key}", "SoftwareApplication", **properties)
            step = {"position": str(len(self.tools)), "name": stage, "workExample": self.tools[stage]}
            self.steps[stage] = self._entity(f"#step-{key}", "HowToStep", **step)
        identifier = sha256(outputs[0]["path"].encode()).hexdigest()[:16]
        ended = datetime.fromisoformat(record["started"]).timestamp() + record["seconds"]
        self.times += [record["started"], datetime.fromtimestamp(ended, UTC).isoformat(timespec="seconds")]
        self.versions |= record["software"]
        settings = [
            self._entity(f"#setting-{identifier}-{name}", "PropertyValue", name=name, value=str(value))
            for name, value in sorted({**record["settings"], "source digest": record["source"]["digest"]}.items())
        ]
        action = self._entity(
            f"#run-{identifier}",
            "CreateAction",
            name=f"{stage}: {outputs[0]['path']}",
            startTime=record["started"],
            endTime=self.times[-1],
            actionStatus=_DONE,
            instrument=self.tools[stage],
            agent=self.author,
            object=[*(self._file(entry) for entry in record["inputs"]), *settings],
            result=[self._file(entry) for entry in outputs],
        )
        self.written |= {entry["path"] for entry in outputs}
        self.actions.append(action)
        control = {"name": f"start {stage}", "instrument": self.steps[stage], "object": action}
        self.controls.append(self._entity(f"#start-{identifier}", "ControlAction", **control))

    def close(self) -> None:
        """Add the workflow, its run as a whole, and the engine that ran it."""
        properties = {"name": "dpfl", "version": __version__, "license": _LICENCE}
        workflow = self.crate.add_workflow("Snakefile", "Snakefile", main=True, lang="snakemake", properties=properties)
        workflow["@type"] = ["File", "SoftwareSourceCode", "ComputationalWorkflow", "HowTo"]
        workflow["author"] = self.author
        workflow["hasPart"], workflow["step"] = list(self.tools.values()), list(self.steps.values())
        workflow["softwareRequirements"] = [
            self._entity(f"#software-{name}", "SoftwareApplication", name=name, softwareVersion=version)
            for name, version in sorted(self.versions.items())
        ]
        sources_of_all = [file for path, file in self.files.items() if path not in self.written]
        results = [file for path, file in self.files.items() if path in self.written]
        for side, files in (("input", sources_of_all), ("output", results)):
            parameter = self._entity(
                f"#{side}", "FormalParameter", name=side, additionalType="File", conformsTo=_PARAMETER
            )
            workflow[side] = [parameter]
            for file in files:
                file["exampleOfWork"] = parameter
        times = {"startTime": min(self.times), "endTime": max(self.times)}
        run = self._entity(
            "#run", "CreateAction", name=f"dpfl, scale {self.folder.name}", actionStatus=_DONE, agent=self.author,
            instrument=workflow, object=sources_of_all, result=results, **times,
        )  # fmt: skip
        engine = {"name": "Snakemake", "softwareVersion": self.versions.get("snakemake", "")}
        engine = self._entity("#snakemake", "SoftwareApplication", **engine)
        self._entity(
            "#organise", "OrganizeAction", name="Snakemake", instrument=engine, object=self.controls, result=run,
            agent=self.author, **times,
        )  # fmt: skip
        self.crate.root_dataset["mentions"] = [run, *self.actions]

    def _file(self, entry: dict[str, Any]) -> Any:
        """Return the entity of a file of a record: in the crate, at its public address, or named by its hash."""
        path = entry["path"]
        if path not in self.files:
            facts = {"name": path, "sha256": entry["sha256"], "contentSize": str(entry["bytes"])}
            raw = _public_address(Path(path))
            if path.startswith(f"results/{self.folder.name}/") and Path(path).exists():
                self.files[path] = self.crate.add_file(path, path, properties=facts)
            elif raw:
                self.files[path] = self.crate.add_file(raw, properties=facts)
            else:
                self.files[path] = self._entity(f"#{path}", "CreativeWork", **facts)
        return self.files[path]

    def _entity(self, key: str, kind: str, /, **properties: Any) -> Any:
        """Add an entity that is no file."""
        return self.crate.add(ContextEntity(self.crate, key, {"@type": kind, **properties}))


def _public_address(path: Path) -> str | None:
    """Return the address of a raw file, or None where the file is none."""
    dataset, file = path.parent.name, path.name
    if path.parent.parent.name != "raw" or not sources.is_published(dataset):
        return None
    return next((each.urls[0] for each in sources.sources(dataset) if each.file == file and each.urls), None)
