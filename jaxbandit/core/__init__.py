"""The mechanics everything stands on: pytrees, PRNG streams, checks and status flags. Knows nothing of bandits."""
