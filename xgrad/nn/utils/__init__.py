"""Helpers for modules."""

from . import stateless as stateless
