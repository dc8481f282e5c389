"""Statistics, tables, figures and HTML reports of results. Nothing below imports it; needs the ``study`` extra."""
