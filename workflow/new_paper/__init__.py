"""The paper sixth2026: the smallest that has every part, for you to change."""
