import pytest

from dpfl.provenance import source_digest


@pytest.fixture
def package(tmp_path):
    """A package dpfl of three modules, of which `a` imports `b`; returns a function that digests `dpfl.a` anew."""
    (tmp_path / "sub").mkdir()
    for name, text in {"__init__": "", "a": "from dpfl.sub.b import f\n", "c": "x = 1\n", "sub/__init__": ""}.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "sub" / "b.py").write_text('"""Doc."""\n\n\ndef f():\n    return 1\n')

    def digest():
        for cached in (source_digest._tree, source_digest._tree_digest, source_digest._imports):
            cached.cache_clear()
        return source_digest.source_digest("dpfl.a", root=tmp_path)

    yield tmp_path, digest
    for cached in (source_digest._tree, source_digest._tree_digest, source_digest._imports):
        cached.cache_clear()


def test_comments_docstrings_and_formatting_do_not_count(package):
    root, digest = package
    before = digest()
    (root / "sub" / "b.py").write_text('"""Another."""\ndef f():  # why\n    """More."""\n    return (1)\n')
    assert digest() == before


def test_a_change_in_an_imported_module_counts(package):
    root, digest = package
    before = digest()
    (root / "sub" / "b.py").write_text("def f():\n    return 2\n")
    assert digest() != before


def test_a_module_that_is_not_imported_does_not_count(package):
    root, digest = package
    before = digest()
    (root / "c.py").write_text("x = 2\n")
    assert digest() == before


def test_training_depends_on_the_accountants_but_not_on_the_reports():
    names = closure("dpfl.experiments.fedavg_images.image_training")
    assert "dpfl.accounting.dpsgd" in names and "dpfl.randomness" in names
    assert not any(name.startswith("dpfl.reporting") for name in names)


def closure(module):
    seen, waiting = set(), [module]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting.extend(source_digest._imports(name, source_digest._ROOT))
    return seen


def test_an_unknown_module_is_refused():
    with pytest.raises(ModuleNotFoundError, match=r"dpfl\.nowhere"):
        source_digest.source_digest("dpfl.nowhere")
