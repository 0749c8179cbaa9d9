"""Reading and writing by indices and masks: `x[...]`, gather and scatter, index_select, masked_fill."""
