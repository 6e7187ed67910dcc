"""What a mechanism guarantees: the privacy mathematics of the five papers. No torch in here."""
