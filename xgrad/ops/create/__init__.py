"""xgrad.ops.create: operators that make tensors from sizes, numbers and users' data; casts, transfers and copies."""
