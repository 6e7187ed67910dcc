"""Validate an unpacked RO-Crate without network; runs in the validator's own environment (see validator.lock).

python validate_crate.py FOLDER [--profile provenance-run-crate]: exits as rocrate-validator does. The two JSON-LD
contexts that a crate names are put into the validator's cache from `contexts/`, which holds the terms that our crates
use, with the addresses that RO-Crate 1.1 and the workflow-run terms give them.
"""

import subprocess
import sys
import tempfile
from io import BytesIO
from pathlib import Path

from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter
from requests_cache import CachedSession
from urllib3 import HTTPResponse

CONTEXTS = {
    "https://w3id.org/ro/crate/1.1/context": "ro-crate-1.1.json",
    "https://w3id.org/ro/terms/workflow-run/context": "workflow-run.json",
}


class Shelf(HTTPAdapter):
    """Answers requests for the contexts from their files, as a server would."""

    def send(self, request: PreparedRequest, **options: object) -> Response:
        content = (Path(__file__).with_name("contexts") / CONTEXTS[request.url]).read_bytes()
        head = {"Content-Type": "application/ld+json"}
        raw = HTTPResponse(BytesIO(content), head, 200, preload_content=False, request_url=request.url)
        return self.build_response(request, raw)


def fill(cache: Path) -> None:
    """Put the contexts into a new HTTP cache."""
    with CachedSession(cache_name=str(cache), expire_after=-1, backend="sqlite") as session:
        session.mount("https://", Shelf())
        for address in CONTEXTS:
            session.get(address)


def main() -> None:
    """Fill a cache, then validate every required check from it."""
    with tempfile.TemporaryDirectory() as scratch:
        cache = Path(scratch) / "cache"
        fill(cache)
        command = [str(Path(sys.executable).with_name("rocrate-validator")), "-y", "validate", "--offline"]
        command += ["--cache-path", str(cache), "-p", "provenance-run-crate", "-l", "required", "--no-paging"]
        sys.exit(subprocess.run([*command, *sys.argv[1:]]).returncode)


if __name__ == "__main__":
    main()
