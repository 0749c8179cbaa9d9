"""Operators that move elements without computing (cat, pad, roll, ...), and the view operations (select, view, ...)."""
