"""Starting, guarding and watching a run of the workflow."""
