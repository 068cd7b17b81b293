"""``python -m spark_consumer``."""

import sys

from spark_consumer.cli import main

if __name__ == "__main__":
    sys.exit(main())
