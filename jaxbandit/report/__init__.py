"""Statistics, tables, figures and HTML reports of results. Needs the ``study`` extra; no lower layer imports it."""
