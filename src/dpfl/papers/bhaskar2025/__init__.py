"""bhaskar2025: DP-SGD at every client, FedAvg at the server; how to split epochs into rounds."""
