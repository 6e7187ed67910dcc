"""Read a YAML file that a person wrote: every fault is one line that names the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from dpfl.errors import InputError

_MOST_BYTES = 1_000_000


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader without duplicate keys and aliases."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Refuse aliases: a configuration needs none, and nested ones fill the memory."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(
                None, None, "aliases (*name) are not allowed", self.peek_event().start_mark
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        """Refuse a key that occurs twice: the second would silently win."""
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for index, key in enumerate(keys):
            if key in keys[:index]:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key!r} occurs twice", node.value[index][0].start_mark
                )
        return super().construct_mapping(node, deep)


def load_mapping(path: Path) -> dict[str, Any]:
    """Return the mapping in the YAML file at `path`; an empty file is an empty mapping.

    Raises InputError, one line, where the file is missing, no file, too large, not UTF-8, not YAML, no mapping, has a
    key twice or an alias, or a value that YAML takes for a date or number that cannot exist.
    """
    if not path.is_file():
        reason = "is a folder or no regular file" if path.exists() else "is not there"
        raise InputError(f"{path} {reason}: name a configuration with --config, or run in the folder of config.yaml")
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise InputError(f"{path} has {path.stat().st_size} bytes: a configuration has at most {_MOST_BYTES}")
        content = yaml.load(path.read_bytes().decode("utf-8"), _Loader)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise InputError(f"{path} is not YAML: {' '.join(str(error).split())[:300]}") from None
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise InputError(f"{path} must have keys and values, found {type(content).__name__}")
    return content
