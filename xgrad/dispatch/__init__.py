"""Operators: declaring them (declare.py), calling them (call.py), recording them, and interpreters in their place."""
