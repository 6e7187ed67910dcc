"""Asynchronous clients (vandijk2023): events, schedules of batches and noise, training, and each client's privacy."""
