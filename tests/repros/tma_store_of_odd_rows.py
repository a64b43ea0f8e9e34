"""TMA stores of rows that end inside a 16-byte chunk wrote past the end of the tensor."""

import sys

from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.fusion.definition import FusionDefinition
from fuser.pipeline import build
from fuser.runtime.call import Spec
from fuser.runtime.classify import classify
from fuser.schedule.params import PointwiseParams

fd = FusionDefinition()
T0 = fd.define_tensor(shape=[-1], dtype="f32")
T1 = fd.ops.relu(T0)
fd.add_output(T1)
fusion = fd.fusion()
params = PointwiseParams((1, 64), 4, 1, None, "direct", "tma")


def stores_by_tma(elements: int) -> bool:
    """Tell whether a tensor of that many elements is stored by TMA, or refused."""
    specs = {"T0": Spec((elements,), (1,), 1024, DType.F32)}
    try:
        build(fusion, params, classify(fusion, params, specs))
    except ScheduleError:
        return False
    return True


if __name__ == "__main__":
    wrong = [n for n in range(1, 70) if stores_by_tma(n) != (n % 4 == 0)]
    print(f"wrong for {wrong}" if wrong else "fixed")
    sys.exit(bool(wrong))
