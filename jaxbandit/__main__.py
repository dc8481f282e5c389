"""``python -m jaxbandit``."""

from jaxbandit.cli import main

raise SystemExit(main())
