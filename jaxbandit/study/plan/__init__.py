"""Planning a study: runs grouped into cells that share a program, and batches that fit memory."""
