"""What an entry of the grid trains: a module of dpfl.experiments with `calibrate` and `train`."""

from importlib import import_module
from types import ModuleType

TODAY = {
    "pfl": "fedavg_images",
    "projected": "trusted_aggregator",
    "comparison": "trust_models",
    "asynchronous": "async_dpsgd",
}
"""Keys of today's grids and run tables whose experiments have other names."""


def name_of(key: str) -> str:
    """Return the name of an experiment from its key in the grid."""
    return TODAY.get(key, key)


def module_name(key: str) -> str:
    """Return the module of an experiment, for records and source digests."""
    return f"dpfl.experiments.{name_of(key)}"


def load(key: str) -> ModuleType:
    """Return an experiment's module."""
    return import_module(module_name(key))
