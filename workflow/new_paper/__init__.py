"""The paper sixth2026: the smallest one with every part, for you to change."""
