"""Whether results say what their runs say: everything recomputed, by another route where there is one."""
