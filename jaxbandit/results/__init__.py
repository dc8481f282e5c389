"""Records, variables, measures, summaries, papers and files of the results of runs."""
