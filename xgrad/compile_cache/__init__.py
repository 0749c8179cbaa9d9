"""The compile cache: a process's compiled programs, for the next process."""

from .folder import CacheInfo as CacheInfo
from .folder import compile_cache_info as compile_cache_info
from .folder import disable_compile_cache as disable_compile_cache
from .folder import enable_as_asked as enable_as_asked
from .folder import enable_compile_cache as enable_compile_cache
from .folder import used_folder as used_folder
from .folder import why_off as why_off
