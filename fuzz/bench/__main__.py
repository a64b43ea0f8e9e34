"""`python -m fuzz.bench ladder | matmul | reductions | proofs` times kernels, or proofs."""

import click

from fuzz.bench import ladder, matmul, proofs, reductions

main = click.Group(
    commands={
        "ladder": ladder.main,
        "matmul": matmul.main,
        "reductions": reductions.main,
        "proofs": proofs.main,
    },
    help="Time our kernels beside their peers (needs a GPU), or proofs (needs none).",
)

if __name__ == "__main__":
    main(prog_name="python -m fuzz.bench")
