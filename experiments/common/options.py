"""Options of the command line that every experiment has, and those that it adds."""

from __future__ import annotations

import argparse

from experiments.common.experiment import PARAMETER_SETS, Experiment, Options
from jaxbandit import checks
from jaxbandit.delays import NEVER

# What no study takes is refused before any problem is made.
MAX_TRIALS = 2**31 - 1
MAX_SEED = 2**63 - 1


def add_options(parser: argparse.ArgumentParser, of: Experiment | Options) -> None:
    """Add the options of an experiment, its own ones too; or, given defaults only, those that all have."""
    defaults = of.defaults if isinstance(of, Experiment) else of
    parser.add_argument("--trials", type=int, default=defaults.trials, metavar="N", help="independent trials (default %(default)s)")
    parser.add_argument("--horizon", type=int, default=defaults.horizon, metavar="T", help="rounds per trial (default %(default)s)")
    resolution = "grid resolution (default %(default)s)" if defaults.points_per_axis else "no effect here: the arms are those of the data"
    parser.add_argument("--points-per-axis", type=int, default=defaults.points_per_axis, metavar="n", help=resolution)
    parser.add_argument("--seed", type=int, default=defaults.seed, metavar="S", help="seed of every random number (default %(default)s)")
    parser.add_argument(
        "--parameters", choices=PARAMETER_SETS, default=defaults.parameters, help="named parameter set (default %(default)s)"
    )
    parser.set_defaults(option_defaults=defaults)
    if isinstance(of, Experiment) and of.add_arguments is not None:
        of.add_arguments(parser)
        parser.set_defaults(**defaults.extra)  # those of the reduced size where it is asked for


def options_from(args: argparse.Namespace) -> Options:
    """Return the options as parsed; raises ``InvalidArgument`` on numbers out of range."""
    checks.integer("--trials", args.trials, least=1, most=MAX_TRIALS)
    checks.integer("--horizon", args.horizon, least=1, most=NEVER - 1)
    if args.option_defaults.points_per_axis:
        checks.integer("--points-per-axis", args.points_per_axis, least=2)
    checks.integer("--seed", args.seed, least=0, most=MAX_SEED)
    return Options(
        trials=args.trials,
        horizon=args.horizon,
        points_per_axis=args.points_per_axis,
        seed=args.seed,
        parameters=args.parameters,
        extra={name: getattr(args, name, default) for name, default in args.option_defaults.extra.items()},
    )
