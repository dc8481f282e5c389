"""Results of studies: on disk, run again, audited, and compared."""
