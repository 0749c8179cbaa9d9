"""Random programs and attacks without a budget: `python -m tests.property.run --count 100000 --seed 1 --jobs 2`.

Prints how many programs ran and, for those that fail, the shortest failing program's source for torch and for xgrad.
`--kind interrupts`, `guards` and `sizes` attack for `--seconds` what their modules name, and print what they counted.
"""

import argparse
import contextlib
import functools
import importlib
import os
import platform
import random
import resource
import subprocess
import sys
import time
from collections import Counter

os.environ.setdefault("JAX_ENABLE_X64", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Most of the time goes into compiling small programs: have XLA optimize less.
QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
if platform.machine() == "x86_64":
    QUICK += " --xla_cpu_max_isa=AVX"  # as in algebra.FLAGS
os.environ.setdefault("XLA_FLAGS", f"{QUICK} --xla_force_host_platform_device_count=8")

KINDS = (
    "programs",
    "interrupts",
    "guards",
    "sizes",
    "algebra",
)  # each but the first is a module with a `run(seconds, seed)`


def arguments():
    parser = argparse.ArgumentParser(prog="python -m tests.property.run", description=__doc__.splitlines()[0])
    parser.add_argument("--kind", choices=KINDS, default=KINDS[0], help="what to run (default: programs)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the other kinds: how long (default: 60)")
    parser.add_argument("--count", type=int, default=1000, help="how many programs (default: 1000)")
    parser.add_argument("--seed", type=int, default=0, help="the first program's seed; the others follow (default: 0)")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes (default: 1)")
    parser.add_argument("--failures", type=int, default=5, help="stop after so many (default: 5)")
    parser.add_argument("--length", type=int, default=12, help="the most steps of a program (default: 12)")
    parser.add_argument("--flavour", help="one of drawing.FLAVOURS (default: all)")
    parser.add_argument("--compiled", action="store_true", help="run backward as compiled programs")
    parser.add_argument("--whole", action="store_true", help="run a part of each program by xgrad.compile")
    parser.add_argument("--sharded", action="store_true", help="shard the data at random over eight devices")
    parser.add_argument("--to-jax", action="store_true", help="run each program through xgrad.to_jax, against the tape")
    return parser.parse_args()


def main():
    options = arguments()
    if options.kind != "programs":
        return attack(options)
    if options.jobs > 1:
        return in_processes(options)
    import jax

    from . import drawing, programs, through_jax, world

    start, failures, told = time.monotonic(), 0, time.monotonic()
    counts = Counter()
    flavours = [drawing.FLAVOURS[options.flavour]] if options.flavour else list(drawing.FLAVOURS.values())
    ways = programs.WHOLE if options.whole else programs.COMPILED if options.compiled else programs.EAGER
    ran, most = 0, 2 << 20  # KiB of memory
    for seed in range(options.seed, options.seed + options.count):
        chosen = random.Random(seed)
        draw = drawing.Draw(chosen)
        program, theirs = drawing.generate(draw, draw.one(flavours), 3 + draw.below(options.length - 2))
        ran += 1
        counts["steps"] += len(program.steps)
        counts["steps that raised"] += sum(e is not None for e in theirs.errors)
        gradient = theirs.seen["gradient"]
        counts["with gradients" if isinstance(gradient, list) else "whose gradient is an error"] += 1
        counts["with second gradients"] += isinstance(gradient, list) and len(gradient) > 1
        counts["without torch's gradients"] += not theirs.gradients_count
        way, path = through_jax.WAYS[seed % 7], ("replay", "geometry")[seed // 7 % 2]
        with programs.Places(seed % 16) if options.sharded else contextlib.nullcontext():
            try:
                if options.to_jax:
                    through_jax.compare(program, way, path)
                else:
                    programs.compare(program, theirs, ways)
            except Exception as error:
                failures += 1
                print(f"\nseed {seed}{f', {way} in the {path} path' * options.to_jax}: {str(error)[:600]}")
                fails = functools.partial(programs.fails, ways=ways)
                if options.to_jax:
                    fails = functools.partial(through_jax.fails, way=way, path=path)
                small = programs.shrink(program, fails) if isinstance(error, AssertionError) else program
                print(small.source("torch").partition(world.SOURCE)[2], fails(small), sep="\n# ", flush=True)
            if failures >= options.failures:
                break
        if ran % 50 == 0 and resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > most:
            jax.clear_caches()  # compiled programs accumulate
            most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + (1 << 19)
        if time.monotonic() - told > 60:
            told = time.monotonic()
            print(f"{ran} programs, {failures} failed, {told - start:.0f} s", flush=True)
    where = "through to_jax" if options.to_jax else "in both paths"
    print(f"{ran} programs ran {where}, {failures} failed, {time.monotonic() - start:.0f} s: {dict(counts)}")
    if options.sharded:
        print(f"checked: {dict(programs.Places.checked)}")
    if options.whole or options.to_jax:
        print(f"compared: {dict((through_jax if options.to_jax else programs).COUNTS)}")
    return 1 if failures else 0


def attack(options):
    """Run another kind, print its counts; 1 if it found failures."""
    name = f"{__package__}.{options.kind}"
    try:
        run = importlib.import_module(name).run
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        sys.exit(f"there is no {name} in this checkout")
    start = time.monotonic()
    counts = run(options.seconds, options.seed)
    width = max(map(len, counts), default=0)
    for what, count in counts.items():
        if isinstance(count, (list, tuple)):
            count = "\n".join(["", *map(str, count)]) if count else 0
        print(f"{what:{width}}  {count}")
    print(f"{options.kind}: {time.monotonic() - start:.0f} s from seed {options.seed}")
    return 1 if counts.get("failures") else 0


def in_processes(options):
    each = -(-options.count // options.jobs)
    running = []
    for job in range(options.jobs):
        count = min(each, options.count - job * each)
        command = [sys.executable, "-m", "tests.property.run", "--count", str(count), "--jobs", "1"]
        command += ["--seed", str(options.seed + job * each), "--failures", str(options.failures)]
        command += ["--length", str(options.length)]
        command += ["--flavour", options.flavour] if options.flavour else []
        command += ["--compiled"] if options.compiled else []
        command += ["--whole"] if options.whole else []
        command += ["--sharded"] if options.sharded else []
        command += ["--to-jax"] if options.to_jax else []
        running.append(subprocess.Popen(command))
    return max(process.wait() for process in running)


if __name__ == "__main__":
    sys.exit(main())
