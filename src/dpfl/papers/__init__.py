"""Papers that are reproduced: one folder each, found and loaded by key through dpfl.catalog."""
