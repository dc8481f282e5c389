"""Results: their variables and coordinates, measures, summaries and files, shared by ``simulate``, studies and reports."""
