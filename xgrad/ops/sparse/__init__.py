"""sparse_coo_tensor, to_sparse, ...: make, convert and read sparse tensors.  The first call imports `xgrad.sparse`."""
