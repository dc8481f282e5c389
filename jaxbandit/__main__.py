"""``python -m jaxbandit``."""

import sys

from jaxbandit.core.memory import address_limit
from jaxbandit.limited import run_apart

limit = address_limit()
if limit is None:
    from jaxbandit.cli import main

    raise SystemExit(main())
raise SystemExit(run_apart(sys.argv[1:], limit))
