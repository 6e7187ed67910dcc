"""Data: where each dataset comes from, how it is fetched, verified and decoded, and what stands in for it."""
