"""``python -m sparkop``."""

from sparkop.cli import main

main()
