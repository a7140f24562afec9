"""``python -m unweave`` is the ``unweave`` command."""

import sys

from unweave.cli import main

sys.exit(main())
