"""Methods of a tensor that compute nothing: they convert it to other types, print, copy and describe it."""
