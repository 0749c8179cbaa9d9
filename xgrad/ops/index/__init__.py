"""The package of operators that read and write by indices and masks: `x[...]`, gather, scatter, masked_fill, etc."""
