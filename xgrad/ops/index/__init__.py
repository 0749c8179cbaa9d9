"""Declares operators that read and write by indices and masks: `x[...]`, gather, scatter, index_select, masked_fill."""
