"""Entry of the zip file that a node gets."""

import sys

from transfer.main import main

sys.exit(main())
