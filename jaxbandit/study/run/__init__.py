"""Running a planned study: compiled programs, batches, checkpoints, progress, and the dataset that comes out."""
