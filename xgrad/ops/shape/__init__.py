"""Operators that move elements without computing, and the view operations."""
