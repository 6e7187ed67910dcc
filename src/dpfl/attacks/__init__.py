"""New docstring; 'auditing' is gone as a name."""
