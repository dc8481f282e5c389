"""Tables and figures of results. Reads datasets only; needs the ``study`` extra."""
