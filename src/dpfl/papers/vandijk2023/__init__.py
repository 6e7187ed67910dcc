"""Van Dijk, Nguyen 2023: considerations on DP-SGD seen through trade-off functions."""
