"""Declares the operators that move elements without computing (cat, pad, ...), and view operations (select, ...)."""
