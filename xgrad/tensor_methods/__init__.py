"""Methods of a tensor that compute nothing: they hand its value out, print, copy and describe it."""
