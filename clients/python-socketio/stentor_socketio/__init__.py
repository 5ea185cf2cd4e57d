"""Runs servers of python-socketio on Stentor."""

from .channel import LinkError
from .link import Link, attach

__all__ = ["Link", "LinkError", "attach"]
