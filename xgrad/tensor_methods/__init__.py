"""Methods of Tensor that convert, print, copy, pickle and describe it, and functions such as is_tensor, can_cast."""
