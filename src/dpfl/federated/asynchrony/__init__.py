"""Clients that work at their own pace: events, what they carry out, and what every client does between them."""
