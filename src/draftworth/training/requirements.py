"""Which releases the training environment is made of."""

from pathlib import Path
from typing import Final

SPECULATORS_VERSION: Final = "0.9.0"
REQUIREMENTS: Final = Path(__file__).with_name("requirements.txt")
"""The pinned list, torch left out."""
