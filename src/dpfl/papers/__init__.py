"""Papers that are reproduced: a folder each, found and loaded by key through dpfl.catalog."""
