"""CUDA text: one line per statement, and every family compiles without a finding."""

import re
from dataclasses import replace

import pytest
from conftest import Golden
from fusions import FAMILIES, SPECIALIZED, compiled

from fuser.codegen import cuda
from fuser.cookbook.recipes import RECIPES
from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.expr import Var, ceildiv
from fuser.kernel import ir as kir
from fuser.runtime.nvrtc import compile_cubin
from fuzz.campaign.mutants import representative
from fuzz.cases import case
from fuzz.cases.norms import NORM_FAMILIES
from fuzz.cases.params import SCAN_FAMILIES
from oracles.assembler import judge_log
from oracles.verdict import Status


def test_cuda_of_a_specialized_kernel(golden: Golden) -> None:
    """The file reads like the Kernel."""
    golden.check(compiled(SPECIALIZED).launches[0].source)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_assembles_without_a_finding(family: str) -> None:
    """No spill, no message; needs neither GPU nor driver."""
    cubin = compile_cubin(compiled(FAMILIES[family]).launches[0].source)
    assert judge_log(cubin.log).status is Status.PASS, cubin.log


DECLARED = re.compile(r"(float|uint32) \w+\[\d+\];|const int (tid|warpgroup|clusterRank_) = .*")
"""Lines that belong to no statement: registers, and who executes."""


def body_lines(text: str) -> list[str]:
    """Lines of a kernel's body that stand for a statement."""
    lines = [line.strip() for line in text.split("tid = threadIdx.x;\n")[1].splitlines()]
    return [
        line for line in lines if line not in ("}", "} else {", "") and not DECLARED.match(line)
    ]


def test_one_line_per_statement() -> None:
    """Declarations apart, statements and lines of the body match one to one."""
    launch = compiled(SPECIALIZED).launches[0]
    assert len(body_lines(launch.source)) == len(list(launch.kernel.walk()))


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_has_one_line_per_statement(name: str) -> None:
    """No statement is lost, none is spelled twice."""
    kernel = RECIPES[name]()
    assert len(body_lines(cuda.source(kernel))) == len(list(kernel.walk()))


@pytest.mark.parametrize("name", RECIPES)
def test_cuda_of_a_recipe(name: str, golden: Golden) -> None:
    """Every statement of the cookbook has a spelling."""
    golden.check(cuda.source(RECIPES[name]()))


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_assembles_without_a_finding(name: str) -> None:
    """People copy them; a wgmma that the assembler serialises is no example."""
    log = compile_cubin(cuda.source(RECIPES[name]())).log
    verdict = judge_log(log)
    assert verdict.status is Status.PASS, log
    assert not verdict.findings, log
    assert "warning" not in log


def test_tickets_and_semaphores_are_parameters() -> None:
    """The launch has to give them, zeroed, between scalars and maps."""
    kernel = RECIPES["split_k"]()
    assert cuda.parameters(kernel)[-4:] == ["turns", "ticket", "A_map", "B_map"]
    assert "const int blockIdx_ = threads::ticket(ticket, smem);" in cuda.source(kernel)


def test_a_ticket_has_room_where_nothing_is_shared() -> None:
    """The number drawn by one thread reaches the others through shared memory."""
    kernel = kir.Kernel("k", (), (), (), (), (), 32, (), residency="ticket")
    assert cuda.shared_bytes(kernel) == 4
    assert cuda.shared_bytes(replace(kernel, residency="any")) == 0


def test_a_cluster_draws_no_tickets() -> None:
    """Its CTAs would draw numbers that are no neighbours."""
    let = kir.Let(Var("x"), kir.BLOCK)
    kernel = kir.Kernel("k", (), (), (), (), (), 32, (let,), residency="ticket", cluster=2)
    with pytest.raises(ScheduleError, match='use residency="co-resident"'):
        cuda.source(kernel)


def test_a_barrier_lies_where_it_says() -> None:
    """Its bytes may be those of a buffer that lives at another time."""
    buffer = kir.Buffer("S", DType.F32, (64,), 1, 0)
    inside, behind = kir.MBarrier("i", 1, 1, offset=64), kir.MBarrier("b", 1, 1)
    body = (kir.MBarrierInit(inside), kir.MBarrierInit(behind))
    text = cuda.source(kir.Kernel("k", (), (), (), (buffer,), (inside, behind), 32, body))
    assert "i = tile::shared<uint64>(smem + 64);" in text
    assert "b = tile::shared<uint64>(smem + 256);" in text


def test_roles_inside_roles_count_their_own_threads() -> None:
    """Layouts and elections belong to the innermost one."""
    inner = kir.Role("inner", 6, 2, (kir.Elect(kir.Per.ROLE, (kir.WarpSync(),)),))
    text = cuda.source(
        kir.Kernel("k", (), (), (), (), (), 256, (kir.Role("outer", 4, 4, (inner,)),))
    )
    assert "if (threads::in_role<6, 2>()) {  // inner" in text
    assert "const int tid = threads::of_role<6>();" in text


def test_a_stride_that_is_also_an_extent_is_an_int() -> None:
    """Extents fit 32 bits; remainders of 64 bits are slow."""
    kernel = RECIPES["wgmma_ring"]()
    assert not any(cuda.is_wide(kernel, param) for param in kernel.params)


def test_strides_of_what_is_near_are_ints() -> None:
    """A multiple of 64 bits takes three instructions."""
    step, n = Var("s"), Var("n")
    far = kir.Tensor("T", DType.F32, (n, n), (step, 1))
    kernel = kir.Kernel("k", (n, step), (far,), (), (), (), 32, ())
    assert cuda.is_wide(kernel, step)
    assert not cuda.is_wide(replace(kernel, tensors=(replace(far, near=True),)), step)


def test_iterations_behind_the_last_are_not_tested_for() -> None:
    """Where they do nothing; so the loads of all are on their way at once."""
    n, s = Var("n"), Var("s")
    loop = kir.ForLoop(s, ceildiv(n, 8), (kir.Let(Var("x"), s),), unroll=7, beyond=True)
    kernel = kir.Kernel("k", (n,), (), (), (), (), 32, (loop,))
    text = cuda.source(kernel)
    assert "for (int s_0 = 0; s_0 < math::quotient((n + 7), 8); s_0 += 7)" in text
    assert "#pragma unroll 7\n  for (int s = s_0; s < s_0 + 7; ++s) {" in text


@pytest.mark.parametrize(
    ("first", "most", "known"),
    [(256, 272, True), (240, 256, True), (250, 266, False), (256, 280, False), (0, 16, False)],
)
def test_a_number_between_multiples_of_a_power_of_2_has_known_bits(
    first: int, most: int, known: bool
) -> None:
    """What a launch is checked to give; the compiler believes no `assume` of it."""
    n = Var("n")
    kernel = kir.Kernel("k", (n,), (), (), (), (), 32, (), requires=(n > first, n <= most))
    text = cuda.source(kernel)
    assert (f"const int n = math::within<{first}, {most - first}>(n_given);" in text) is known
    assert ("const int n_given" in text) is known


def test_known_bits_change_no_number() -> None:
    """Of those between the multiples, all powers of 2 up to a row."""
    for many in (1 << bits for bits in range(12)):
        for first in range(many, 5 * many, many):
            for n in {first + 1, first + many // 2 + 1, first + many}:
                assert (first | ((n - 1) & (many - 1))) + 1 == n


@pytest.mark.parametrize("family", [*NORM_FAMILIES, *SCAN_FAMILIES])
def test_kernels_of_whole_rows_assemble_too(family: str) -> None:
    """A device function that lacks what their layouts have is seen by NVRTC alone."""
    for launch in case.compiled(representative(family)).launches:
        assert judge_log(compile_cubin(launch.source).log).status is Status.PASS
