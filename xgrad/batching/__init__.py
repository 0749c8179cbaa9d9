"""xgrad.batching implements `func.vmap`: a `BatchedTensor` has one entry's shape and holds the batch."""
