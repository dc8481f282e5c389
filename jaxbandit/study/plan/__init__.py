"""Planning a study: runs grouped into cells that share a program, batches that fit memory, and processes that share the work."""
