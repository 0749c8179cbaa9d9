"""Training programs in the styles that people write, each run by PyTorch and by xgrad: the same losses."""
