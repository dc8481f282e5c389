"""Sessions: real experiments that ask for points and are told values, late, in parts and out of order, and that survive a crash."""
