"""Variables, measures, summaries and files of the results of runs."""
