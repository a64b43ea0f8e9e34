"""What a legal kernel is: every rule is seen failing."""

from dataclasses import replace

import kernels
import pytest

from fuser.cookbook.recipes import RECIPES, specialized_ring, wgmma_ring
from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.expr import Var
from fuser.kernel import ir as kir
from fuser.kernel.validate.legal import validate

BAR = kir.MBarrier("bar", 1, 2)


def test_hand_written_kernels_are_legal() -> None:
    """The base of the refusals."""
    for kernel in (
        kernels.direct(),
        kernels.pipelined(3, 2),
        kernels.specialized(2),
        kernels.staged(2),
    ):
        validate(kernel, final=True)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_legal(name: str) -> None:
    """The cookbook is what people copy."""
    validate(RECIPES[name](), final=True)


@pytest.mark.parametrize("stages", [2, 5])
@pytest.mark.parametrize("consumers", [1, 3])
def test_recipes_are_legal_at_other_sizes(stages: int, consumers: int) -> None:
    """Roles and barriers move with the number of consumers, buffers with the stages."""
    validate(specialized_ring(stages, consumers), final=True)
    validate(wgmma_ring(stages, 1, consumers), final=True)


def test_what_a_pass_made_is_not_held_against_shared_memory() -> None:
    """The pipeline does that after the passes, and names the params to change."""
    large = wgmma_ring(200)
    validate(large, after="lower")
    with pytest.raises(ScheduleError, match="of shared memory, a CTA has 232448"):
        validate(large)


def kernel_of(*body: kir.Stmt, barriers: tuple[kir.MBarrier, ...] = (BAR,)) -> kir.Kernel:
    """A kernel over T0 and T1 with this body."""
    ring = kir.Buffer("S0", DType.F32, (4, 64), 2, 0)
    return kernels.kernel("k", list(body), buffers=(ring,), barriers=barriers)


def copy(**change: object) -> kir.TmaLoad:
    """A load of one tile with some fields changed."""
    ring = kir.Buffer("S0", DType.F32, (4, 64), 2, 0)
    fields: dict[str, object] = {
        "dst": kir.Slot(ring, 0),
        "src": kernels.box(kernels.T0, 0),
        "barrier": BAR,
        "slot": 0,
    }
    return kir.TmaLoad(**(fields | change))  # type: ignore[arg-type] # fields by name


SHARED = kir.WarpSync()
CASES: list[tuple[str, kir.Kernel]] = [
    ("stands inside an elect", kernel_of(kir.Elect(kir.Per.ROLE, (kir.BlockSync(0, 128),)))),
    ("stands inside an elect", kernel_of(kir.Elect(kir.Per.WARP, (kir.WarpSync(),)))),
    ("need barrier 0..15", kernel_of(kir.BlockSync(16, 128))),
    ("multiple of 32 threads", kernel_of(kir.BlockSync(0, 100))),
    (
        "uses a barrier that the kernel does not declare",
        kernel_of(kir.MBarrierInit(BAR), barriers=()),
    ),
    ("uses x, which nothing defines", kernel_of(kir.Let(Var("y"), Var("x")))),
    ("uses k, which nothing defines", kernel_of(kir.MBarrierArrive(BAR, Var("k") % 2))),
    ("is the same object twice", kernel_of(SHARED, SHARED)),
    ("must be issued by one thread", kernel_of(copy())),
    ("leaves the 4 warps", kernel_of(kir.Role("r", 3, 2, ()))),
    (
        "uses a tensor that the kernel does not declare",
        kernel_of(kir.Load(kernels.X, kernels.box(replace(kernels.T0, name="T9"), 0), 4)),
    ),
    ("which is not an output", kernel_of(kir.Store(kernels.box(kernels.T0, 0), kernels.X, 4))),
    ("width 3 must divide vector 4", kernel_of(kir.Load(kernels.X, kernels.box(kernels.T0, 0), 3))),
    (
        "does not broadcast to the fragment's",
        kernel_of(kir.Load(kernels.X, replace(kernels.box(kernels.T0, 0), shape=(2, 64)), 4)),
    ),
    (
        "a store must not write one element",
        kernel_of(kir.Store(replace(kernels.box(kernels.T1, 0), shape=(1, 64)), kernels.X, 4)),
    ),
    (
        "the copy engine clips at the tensor's extents",
        kernel_of(
            kir.Elect(kir.Per.ROLE, (copy(src=replace(kernels.box(kernels.T0, 0), limit=(4, 64))),))
        ),
    ),
    ("the engine writes chunks of 16 bytes", kernels.unaligned(kernels.staged(2))),
    (
        "box .* and slot .* differ",
        kernel_of(
            kir.Elect(kir.Per.ROLE, (copy(src=replace(kernels.box(kernels.T0, 0), shape=(2, 64))),))
        ),
    ),
]


@pytest.mark.parametrize(("message", "kernel"), CASES, ids=range(len(CASES)))
def test_refusals(message: str, kernel: kir.Kernel) -> None:
    """Each names the line of the kernel's text."""
    with pytest.raises(ScheduleError, match=f"after kernel: .*{message}"):
        validate(kernel)


def test_a_copy_without_observation_is_not_final() -> None:
    """Lowered kernels are legal, but not finished."""
    ring = kir.Buffer("S0", DType.F32, (4, 64), 2, 0)
    kernel = kernel_of(kir.Copy(kir.Slot(ring, 0), kernels.box(kernels.T0, 0), kir.Engine.TMA))
    validate(kernel)
    with pytest.raises(ScheduleError, match="no pass said how its end is observed"):
        validate(kernel, final=True)


def test_a_left_over_request_is_not_final() -> None:
    """A pass that ignored the schedule is noticed."""
    request = kir.CircularBuffer(2, 1)
    kernel = kernel_of(kir.ForLoop(Var("i"), 3, (), request))
    with pytest.raises(ScheduleError, match="still asks for circular buffering"):
        validate(kernel, final=True)


@pytest.mark.parametrize("threads", [0, 33, 1056])
def test_thread_counts(threads: int) -> None:
    """Whole warps, at most 1024 threads."""
    with pytest.raises(ScheduleError, match="use a multiple of 32, at most 1024"):
        validate(replace(kernels.direct(), threads=threads))


def test_names_are_unique() -> None:
    """Two buffers of one name would be one in the CUDA text."""
    ring = kir.Buffer("S0", DType.F32, (4, 64), 2, 0)
    kernel = kernels.kernel("k", [], buffers=(ring, replace(ring, offset=2048)))
    with pytest.raises(ScheduleError, match="named S0; rename one"):
        validate(kernel)
