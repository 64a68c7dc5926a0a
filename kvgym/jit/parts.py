"""Parts are compiled functions that others inline: typed and lowered, but never made into machine code.

numba compiles each function that another one calls as if Python were to call it, too: it optimizes everything below it
once more, emits machine code, wraps it twice and writes it to the cache. For a call tree of 130 small functions that
was two thirds of the time of a first run. The passes here leave a part as unoptimized LLVM code for its callers.

They use numba's compiler classes (the same from 0.61 to 0.68), which promise less than its decorators do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import AnalysisPass, LoweringPass, register_pass
from numba.core.typed_passes import NativeLowering, NopythonTypeInference


class _PartLibrary(JITCodeLibrary):
    """Code to be linked into a caller's, which is optimized there."""

    def _optimize_final_module(self) -> None:
        """Leave it to the callers."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


@register_pass(mutates_CFG=False, analysis_only=True)
class _MakeLibrary(AnalysisPass):
    """Gives the function its library before the lowering makes an ordinary one."""

    _name = "kvgym_make_library"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        state.library = _PartLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        return False


@register_pass(mutates_CFG=False, analysis_only=True)
class _Announce(LoweringPass):
    """Makes the lowered function known to its callers, under a key, as numba does with those that have machine code."""

    _name = "kvgym_announce"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        key, lowered = object(), state["cr"]
        state.targetctx.insert_user_function(key, lowered.fndesc, [state.library])
        state["cr"] = lowered._replace(cfunc=key)
        return True


class _PartCompiler(CompilerBase):
    """numba's pipeline with the two passes above."""

    def define_pipelines(self) -> list[Any]:
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(_MakeLibrary, NopythonTypeInference)
        passes.add_pass_after(_Announce, NativeLowering)
        passes.finalize()
        return [passes]


def part(function: Callable[..., Any], settings: dict[str, Any], door: Callable[[], Any]) -> Any:
    """Return `function` as a part.

    Args:
        function: what to compile.
        settings: of `numba.njit`.
        door: makes the ordinary compiled function, which answers calls from Python.
    """
    settings = {**settings, "forceinline": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    dispatcher = numba.njit(pipeline_class=_PartCompiler, **settings)(function)

    def add_overload(result: Any) -> None:
        dispatcher.overloads[tuple(result.signature.args)] = result

    # numba's C code calls what it knows of: it must know of no overload, and asks for one at every call from Python.
    dispatcher.add_overload = add_overload
    dispatcher._compile_for_args = lambda *_, **__: door()
    return dispatcher
