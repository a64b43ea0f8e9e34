"""Values and times of whole-row kernels on the GPU; one line per case.  At most 4 minutes."""

import math
import os
import random
import signal
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
BEGIN = time.time()
LIMIT = float(os.environ.get("MEASURE_S", "232"))
left = lambda: LIMIT - (time.time() - BEGIN)
os.environ.setdefault("FUSER_CACHE", os.path.join(os.environ.get("OUT", "/tmp"), "cache_norm"))

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.params import NormParams


def bc(fd, t):
    return fd.ops.broadcast(t, [False, True])


def row(fd, t):
    return fd.ops.broadcast(t, [True, False])


def softmax(dt="bf16"):
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], dtype=dt)
        o = fd.ops
        xf = o.cast(x, "f32") if dt != "f32" else x
        e = o.exp(o.sub(xf, bc(fd, o.max(xf, dims=[1]))))
        fd.add_output(o.cast(o.div(e, bc(fd, o.sum(e, dims=[1]))), dt))
    return fd.fusion()


def layernorm(dt="bf16", stats=False):
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], dtype=dt)
        g = fd.define_tensor(shape=[-1], dtype=dt)
        b = fd.define_tensor(shape=[-1], dtype=dt)
        o = fd.ops
        xf = o.cast(x, "f32") if dt != "f32" else x
        m = o.mean(xf, dims=[1])
        d = o.sub(xf, bc(fd, m))
        r = o.rsqrt(o.add(o.mean(o.mul(d, d), dims=[1]), 1e-5))
        fd.add_output(o.cast(o.add(o.mul(o.mul(d, bc(fd, r)), row(fd, g)), row(fd, b)), dt))
        if stats:
            fd.add_output(m)
            fd.add_output(r)
    return fd.fusion()


def rmsnorm(dt="bf16", add=False):
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], dtype=dt)
        o = fd.ops
        if add:
            r = fd.define_tensor(shape=[-1, -1], dtype=dt)
        g = fd.define_tensor(shape=[-1], dtype=dt)
        if add:
            x = o.cast(o.add(x, r), dt)
            fd.add_output(x)
        xf = o.cast(x, "f32") if dt != "f32" else x
        r_ = o.rsqrt(o.add(o.mean(o.mul(xf, xf), dims=[1]), 1e-6))
        fd.add_output(o.cast(o.mul(o.mul(xf, bc(fd, r_)), row(fd, g)), dt))
    return fd.fusion()


def softmax_bwd(dt="bf16"):
    with FusionDefinition() as fd:
        y = fd.define_tensor(shape=[-1, -1], dtype=dt)
        dy = fd.define_tensor(shape=[-1, -1], dtype=dt)
        o = fd.ops
        yf, df = o.cast(y, "f32"), o.cast(dy, "f32")
        fd.add_output(o.cast(o.mul(yf, o.sub(df, bc(fd, o.sum(o.mul(yf, df), dims=[1])))), dt))
    return fd.fusion()


def layernorm_dx(dt="bf16"):
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], dtype=dt)
        dy = fd.define_tensor(shape=[-1, -1], dtype=dt)
        g = fd.define_tensor(shape=[-1], dtype=dt)
        m = fd.define_tensor(shape=[-1], dtype="f32")
        r = fd.define_tensor(shape=[-1], dtype="f32")
        o = fd.ops
        xf, df = o.cast(x, "f32"), o.cast(dy, "f32")
        xh = o.mul(o.sub(xf, bc(fd, m)), bc(fd, r))
        dg = o.mul(df, row(fd, g))
        a, b = o.mean(dg, dims=[1]), o.mean(o.mul(dg, xh), dims=[1])
        fd.add_output(
            o.cast(o.mul(bc(fd, r), o.sub(o.sub(dg, bc(fd, a)), o.mul(xh, bc(fd, b)))), dt)
        )
    return fd.fusion()


KINDS = {
    "softmax": (softmax, ["x"]),
    "layernorm": (layernorm, ["x", "g", "b"]),
    "lnstats": (lambda dt="bf16": layernorm(dt, True), ["x", "g", "b"]),
    "rmsnorm": (rmsnorm, ["x", "g"]),
    "addrms": (lambda dt="bf16": rmsnorm(dt, True), ["x", "x", "g"]),
    "softmax_bwd": (softmax_bwd, ["x", "x"]),
    "layernorm_dx": (layernorm_dx, ["x", "x", "g", "m", "m"]),
}
NROWS = {
    "N1": ("layernorm", 32768, 1024, "bf16"),
    "N2": ("layernorm", 16384, 4096, "bf16"),
    "N3": ("layernorm", 16384, 8192, "bf16"),
    "N4": ("layernorm", 4096, 65536, "bf16"),
    "N5": ("rmsnorm", 32768, 4096, "bf16"),
    "N7": ("addrms", 16384, 8192, "bf16"),
    "N8": ("softmax", 32768, 4096, "bf16"),
    "N9": ("softmax", 8192, 32768, "bf16"),
    "N10": ("softmax", 4096, 131072, "f32"),
    "SB": ("softmax_bwd", 32768, 4096, "bf16"),
    "LD": ("layernorm_dx", 16384, 4096, "bf16"),
    "s300": ("softmax", 200000, 300, "bf16"),
    "o4099": ("layernorm", 20011, 4099, "bf16"),
    "o1001": ("softmax", 60000, 1001, "bf16"),
}


def candidates(kind, rows, cols, dt):
    """Schedules worth trying."""
    size = 4 if dt == "f32" else 2
    whole = {"addrms": 2, "softmax_bwd": 2, "layernorm_dx": 2}.get(kind, 1)
    aligned = math.gcd(cols * size, 16) // size
    out = {}
    for vector in [8 if size == 2 else 4] if aligned * size >= 8 else [1, 8]:
        for el in (4, 8, 16, 32, 64, 128):
            lanes = 1
            while lanes * el < cols:
                lanes *= 2
            if lanes > 1024 or (lanes < 4) or el < vector or (el > 64 and lanes < 512):
                continue
            if el * size * whole > 256:
                continue
            step = lanes * vector
            wide = -(-cols // step) * step
            for th in sorted({max(lanes, 128), max(lanes, 256)}):
                grp = th // lanes
                if rows < 132 * grp and th > lanes and th > 128:
                    continue
                held = wide // lanes
                if held > 128:
                    continue
                for rec in (False, True):
                    words = held * size / 4 * whole + (0 if rec else held * 0.6) + 26
                    res = max(1, min(2048 // th, int(65536 // (th * max(32, words)))))
                    for r in sorted({res, max(1, res * 3 // 4)}):
                        tag = f"v{vector} e{held} t{th} l{lanes} {'R' if rec else '-'} r{r}"
                        out[f"direct {tag}"] = NormParams(
                            (grp, wide),
                            vector,
                            th // 32,
                            None,
                            "direct",
                            "direct",
                            lanes=lanes,
                            recompute=rec,
                            resident=r,
                        )
                    if aligned * size < 4:
                        continue
                    slot = grp * wide * size * whole
                    words += 0 if kind in ("softmax", "softmax_bwd") else held / 2
                    res = max(1, min(2048 // th, int(65536 // (th * max(40, words)))))
                    for r in sorted({res, max(1, res // 2)}):
                        fit = min(8, (226 * 1024 // r - 1024) // slot)
                        for st in sorted({min(fit, 2), min(fit, 3), min(fit, 5)}):
                            if st < 2:
                                continue
                            tag = (
                                f"v{vector} e{held} t{th} l{lanes} {'R' if rec else '-'} r{r} s{st}"
                            )
                            out[f"ring {tag}"] = NormParams(
                                (grp, wide),
                                vector,
                                th // 32,
                                r,
                                "cp_async",
                                "direct",
                                st,
                                st - 1,
                                lanes=lanes,
                                recompute=rec,
                                resident=r,
                            )
    return out


def spec_args(kind, rows, cols, dt):
    from fuser.dtype import DType
    from fuser.runtime.call import Spec

    d = {"bf16": DType.BF16, "f32": DType.F32}[dt]
    fusion = KINDS[kind][0](dt)
    specs = {}
    for tv, word in zip(fusion.inputs, KINDS[kind][1]):
        shape = {"x": (rows, cols), "g": (cols,), "b": (cols,), "m": (rows,)}[word]
        specs[tv.name] = Spec(
            shape, (cols, 1) if word == "x" else (1,), 1024, DType.F32 if word == "m" else d
        )
    return fusion, specs


def warm(job):
    """Build and compile, in a process of its own; return spills and registers."""
    (kind, rows, cols, dt), params = job
    try:
        from fuser.pipeline import build
        from fuser.runtime.classify import classify
        from fuser.runtime.nvrtc import compile_cubin
        from oracles.assembler import resources

        fusion, specs = spec_args(kind, rows, cols, dt)
        program = build(fusion, params, classify(fusion, params, specs))
        found = [resources(compile_cubin(one.source).log)[0] for one in program.launches]
        return max(one.registers for one in found), max(one.spill_bytes for one in found)
    except Exception as error:
        return repr(error)[:200]


def main():
    import torch
    import torch.nn.functional as F

    from fuser.errors import ScheduleError
    from fuser.runtime.executable import Executable
    from fuzz.bench import row as bench

    signal.signal(signal.SIGALRM, lambda *_: (print("time is over", flush=True), os._exit(0)))
    signal.alarm(int(LIMIT) + 4)
    dtypes = {"bf16": torch.bfloat16, "f32": torch.float32}
    eps = {"bf16": 2**-8, "f32": 2e-6}

    def make(kind, rows, cols, dt):
        out = []
        for word in KINDS[kind][1]:
            shape = {"x": (rows, cols), "g": (cols,), "b": (cols,), "m": (rows,)}[word]
            t = torch.randn(*shape, device="cuda")
            out.append(t.float() if word == "m" else t.to(dtypes[dt]))
        return tuple(out)

    def reference(kind, given, wide=torch.float64):
        a = [t.to(wide) for t in given]
        dt = given[0].dtype
        match kind:
            case "softmax":
                return [torch.softmax(a[0], 1)]
            case "layernorm":
                return [F.layer_norm(a[0], a[0].shape[1:], a[1], a[2], 1e-5)]
            case "lnstats":
                v, m = torch.var_mean(a[0], 1, correction=0)
                return [
                    F.layer_norm(a[0], a[0].shape[1:], a[1], a[2], 1e-5),
                    m,
                    torch.rsqrt(v + 1e-5),
                ]
            case "rmsnorm":
                return [a[0] * torch.rsqrt((a[0] ** 2).mean(1, keepdim=True) + 1e-6) * a[1]]
            case "addrms":
                h = (given[0] + given[1]).to(wide)
                return [h, h * torch.rsqrt((h**2).mean(1, keepdim=True) + 1e-6) * a[2]]
            case "softmax_bwd":
                return [a[0] * (a[1] - (a[0] * a[1]).sum(1, keepdim=True))]
            case "layernorm_dx":
                x, dy, g, m, r = a
                xh = (x - m[:, None]) * r[:, None]
                dg = dy * g
                return [
                    r[:, None]
                    * (dg - dg.mean(1, keepdim=True) - xh * (dg * xh).mean(1, keepdim=True))
                ]

    def torch_form(kind):
        match kind:
            case "softmax":
                return lambda x: torch.softmax(x, 1)
            case "layernorm":
                return lambda x, g, b: F.layer_norm(x, x.shape[1:], g, b)
            case "rmsnorm":
                return lambda x, g: F.rms_norm(x, x.shape[1:], g, 1e-6)
            case "addrms":

                def f(x, r, g):
                    h = x + r
                    return h, F.rms_norm(h, h.shape[1:], g, 1e-6)

                return f
            case "softmax_bwd":
                return lambda y, dy: torch.ops.aten._softmax_backward_data(dy, y, 1, y.dtype)
            case "layernorm_dx":

                def f(x, dy, g, m, r):
                    xf, df = x.float(), dy.float()
                    xh = (xf - m[:, None]) * r[:, None]
                    dg = df * g
                    return (
                        r[:, None]
                        * (dg - dg.mean(1, keepdim=True) - xh * (dg * xh).mean(1, keepdim=True))
                    ).to(x.dtype)

                return f

    def check(kind, rows, cols, dt, params, tag):
        given = make(kind, rows, cols, dt)
        try:
            got = Executable(KINDS[kind][0](dt), params)(*given)
        except ScheduleError as error:
            return f"refused {str(error)[:160]}"
        got = list(got) if isinstance(got, (tuple, list)) else [got]
        for n, (mine, want) in enumerate(zip(got, reference(kind, given))):
            if mine.numel() == 0:
                continue
            off = (mine.double() - want).abs()
            room = eps[dt] * (
                want.abs() + (want.abs().mean() + 1 / cols) * (1 if dt == "bf16" else 8)
            )
            bad = ~(off <= room * 1.5)
            if bad.any():
                at = int(bad.flatten().nonzero()[0])
                return f"output {n}: {int(bad.sum())} of {bad.numel()} wrong, first at {at}: {mine.flatten()[at].item()} for {want.flatten()[at].item()}"
        return None

    pool = ProcessPoolExecutor(max(2, min(14, (os.cpu_count() or 4) - 2)))
    sweeps = {name: candidates(*case) for name, case in NROWS.items()}
    random.seed(0)
    jobs = {}
    for name, case in NROWS.items():
        tried = list(sweeps[name].items())
        if len(tried) > 26:
            tried = random.sample(tried, 26)
        sweeps[name] = dict(tried)
        jobs[name] = {
            tag: pool.submit(warm, (case, params))
            for tag, params in {"default": None, **sweeps[name]}.items()
        }

    # --- values ---
    shapes = [
        (1, 1),
        (1, 2),
        (3, 1),
        (5, 7),
        (2, 16),
        (17, 31),
        (33, 33),
        (128, 63),
        (129, 64),
        (64, 65),
        (7, 127),
        (9, 128),
        (300, 257),
        (31, 511),
        (1000, 513),
        (5, 1023),
        (77, 1024),
        (200, 1025),
        (50, 2047),
        (133, 2048),
        (265, 4095),
        (264, 4096),
        (20, 4099),
        (19, 8191),
        (300, 8192),
        (17, 12345),
        (40, 16384),
        (9, 20001),
        (150, 32768),
        (5, 40000),
        (140, 65536),
        (3, 65535),
        (2, 70001),
        (4, 131072),
        (0, 64),
        (4, 0),
    ]
    extra = [
        lambda r, c: NormParams(
            (4, -(-c // 64) * 64), 2, 4, 2, "cp_async", "direct", 3, 2, lanes=32
        ),
        lambda r, c: NormParams(
            (1, -(-c // 1024) * 1024), 8, 4, 1, "direct", "direct", lanes=128, recompute=True
        ),
        lambda r, c: NormParams((16, -(-c // 8) * 8), 1, 4, 3, "direct", "direct", lanes=8),
    ]
    count = wrong = 0
    stop = left() - 60
    for rows, cols in shapes:
        for kind in KINDS:
            for dt in ("bf16", "f32"):
                if dt == "f32" and kind not in ("softmax", "layernorm", "rmsnorm"):
                    continue
                tries = [None]
                if cols in (63, 64, 127, 128, 257, 1024) and dt == "bf16":
                    tries += [e for e in extra]
                for t in tries:
                    if left() < stop and left() < 150:
                        break
                    try:
                        params = t(rows, cols) if t else None
                        why = check(kind, rows, cols, dt, params, "")
                    except ScheduleError:
                        continue
                    except Exception as error:
                        why = repr(error)[:300]
                    count += 1
                    if why and not (t and why.startswith("refused")):
                        wrong += 1
                        print(f"VALUE {kind} {rows}x{cols} {dt} {params}: {why}", flush=True)
    print(f"values: {count} compared, {wrong} wrong, {time.time() - BEGIN:.0f} s", flush=True)

    # --- times ---
    best = {}
    for name, case in NROWS.items():
        kind, rows, cols, dt = case
        if left() < 25:
            print(f"{name}: no time left")
            continue
        sets = [make(*case) for _ in range(2 if rows * cols > 2**24 else 6)]
        peers, notes = {}, {}
        given_ref = reference(
            kind, tuple(t[:64] if t.dim() == 2 or t.shape[0] == rows else t for t in sets[0])
        )
        for tag, params in {"default": None, **sweeps[name]}.items():
            job = jobs[name][tag]
            try:
                note = job.result(timeout=max(1, min(20, left())))
            except Exception as error:
                note = repr(error)[:80]
            notes[tag] = note
            if isinstance(note, str):
                if "ScheduleError" not in note:
                    print(f"{name} {tag}: {note}", flush=True)
                continue
            if note[1] > 64 and tag != "default":
                continue
            try:
                run = Executable(KINDS[kind][0](dt), params)
                got = run(*sets[0])
                outs = list(got) if isinstance(got, (tuple, list)) else [got]
                off = max(
                    float((o[:64].double() - w).abs().max() / (w.abs().max() + 1e-30))
                    for o, w in zip(outs, given_ref)
                )
                if off > 0.02:
                    print(f"{name} {tag}: OFF {off}", flush=True)
                peers[tag] = lambda *given, run=run, outs=outs: run(*given, out=outs)
            except Exception as error:
                print(f"{name} {tag}: {repr(error)[:200]}", flush=True)
        form = torch_form(kind)
        peers["torch"] = form
        src = sets[0][0]
        dst = torch.empty_like(src)
        peers["copy"] = lambda *given: dst.copy_(given[0])
        bench.LONG_US = 3000.0
        rough = bench.side_by_side(peers, sets, samples=3)
        order = sorted(sweeps[name].keys() & rough.keys(), key=lambda t: rough[t])
        keep = {t: peers[t] for t in ("default", "torch", "copy") if t in peers} | {
            t: peers[t] for t in order[:4]
        }
        if left() > 60 and name.startswith("N"):
            try:
                keep["compile"] = torch.compile(form, dynamic=False)
                keep["compile"](*sets[0])
            except Exception as error:
                print(name, repr(error)[:100])
                keep.pop("compile", None)
        bench.LONG_US = 10000.0
        fine = bench.side_by_side(keep, sets, samples=7)
        scale = {"addrms": 2.0, "softmax_bwd": 1.5, "layernorm_dx": 1.5}.get(kind, 1.0)
        copy = fine.pop("copy") * scale
        print(
            f"TIME {name} {kind} {rows}x{cols} {dt} copy {copy:.1f} | "
            + " | ".join(
                f"{t} {us:.1f} ({copy / us:.3f})" + (f" {notes[t]}" if t in notes else "")
                for t, us in sorted(fine.items(), key=lambda p: p[1])
            ),
            flush=True,
        )
        print(
            "   all: "
            + "; ".join(f"{t}={us:.1f}" for t, us in sorted(rough.items(), key=lambda p: p[1])),
            flush=True,
        )
        del sets, peers, keep
        torch.cuda.empty_cache()

    # --- random shapes, by default ---
    rnd = random.Random(7)
    for n in range(40):
        if left() < 8:
            break
        rows = int(16 * (200000 / 16) ** rnd.random())
        cols = int(16 * (130000 / 16) ** rnd.random())
        if n % 3:
            cols -= cols % 8
        if rows * cols > 2**28:
            rows = max(16, 2**28 // cols)
        kind = ("softmax", "layernorm")[n % 2]
        sets = [make(kind, rows, cols, "bf16") for _ in range(2 if rows * cols > 2**24 else 6)]
        run = Executable(KINDS[kind][0]("bf16"), None)
        try:
            out = run(*sets[0])
            outs = list(out) if isinstance(out, (tuple, list)) else [out]
        except Exception as error:
            print(f"RANDOM {kind} {rows}x{cols}: {repr(error)[:200]}")
            continue
        dst = torch.empty_like(sets[0][0])
        peers = {
            "ours": lambda *g: run(*g, out=outs),
            "torch": torch_form(kind),
            "copy": lambda *g: dst.copy_(g[0]),
        }
        bench.LONG_US = 3000.0
        t = bench.side_by_side(peers, sets, samples=5)
        print(
            f"RANDOM {kind} {rows}x{cols} ours {t['ours']:.1f} torch {t['torch']:.1f} copy {t['copy']:.1f} | {t['torch'] / t['ours']:.2f} of torch, {t['copy'] / t['ours']:.2f} of copy",
            flush=True,
        )
        del sets, dst, out, outs
        torch.cuda.empty_cache()
    print(f"over after {time.time() - BEGIN:.0f} s", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
