"""Declares operators (declare.py), calls them (call.py), records them (record.py), or has interpreters run them."""
