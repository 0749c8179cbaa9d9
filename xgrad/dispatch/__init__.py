"""Declares operators (declare.py), calls and records them (call.py, record.py), or has vmap and others run them."""
