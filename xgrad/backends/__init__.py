"""Backends as values: a declaration of how a device behaves, on which programs run, and a report of what it did."""

from .backend import Backend as Backend
from .cost import Cost as Cost
