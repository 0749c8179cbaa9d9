"""Runs operators' XLA programs: each at once, or, in an `xgrad.lazy` block, queued and many of them as one program."""
