"""xgrad.compile_cache: functions that switch on, describe, save and load the compile cache, a folder of programs."""

from .execution.programs.archive import load as load
from .execution.programs.archive import save as save
from .execution.programs.compiles import Compile as Compile
from .execution.programs.compiles import CompileMetrics as CompileMetrics
from .execution.programs.compiles import metrics as metrics
from .execution.programs.folder import CacheInfo as CacheInfo
from .execution.programs.folder import compile_cache_info as compile_cache_info
from .execution.programs.folder import disable_compile_cache as disable_compile_cache
from .execution.programs.folder import enable_as_asked as enable_as_asked
from .execution.programs.folder import enable_compile_cache as enable_compile_cache
from .execution.programs.folder import folder_is_own as folder_is_own
from .execution.programs.folder import used_folder as used_folder
from .execution.programs.folder import why_off as why_off
