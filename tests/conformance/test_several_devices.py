"""Every algorithm gives on several devices what it gives on one."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from tests.support.algorithms import DEFAULTS
from tests.support.conformance import named, one_by_one
from tests.support.paths import ROOT

SHARDED = """
import json
import jax
import numpy as np
import jaxbandit
from tests.support.algorithms import DEFAULTS
from tests.support.conformance import beside, named, simulate
assert len(jax.devices()) == 4
runs = {}
with jax.enable_x64(True):
    for sees_constraints in (False, True):
        runs |= beside("defaults", sees_constraints, "float64", block=1)
    one = jax.devices()[2]
    runs["one device"] = simulate(DEFAULTS["rpol"](), devices=[one])
    assert {device for x in named(runs["one device"]).values() for device in x.devices()} == {one}
    runs["spread"] = simulate(DEFAULTS["rpol"]())
    assert {len(x.sharding.device_set) for x in named(runs["spread"]).values()} == {4}
    swept = simulate(jaxbandit.sweep(jaxbandit.Rpol(), {"initial_penalty": [0.5, 1.0]}))
    assert len(swept.values.sharding.device_set) == 4
    runs["swept"] = jax.tree.map(lambda x: x[1], swept)
report = {name: {path: np.asarray(x).tolist() for path, x in named(run).items()} for name, run in runs.items()}
print(json.dumps(report))
"""


@pytest.mark.full
def test_sharded_equals_unsharded() -> None:
    """Five trials spread over four devices, with padding, or all on the third of them, against this process's run on its only one."""
    flags = " ".join([os.environ.get("XLA_FLAGS", ""), "--xla_force_host_platform_device_count=4"]).strip()
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "JAX_NUMPY_DTYPE_PROMOTION": "strict"}
    done = subprocess.run(
        [sys.executable, "-c", SHARDED], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report.keys() == {*DEFAULTS, "one device", "spread", "swept"}
    for name, fields in report.items():
        expected = named(one_by_one(name if name in DEFAULTS else "rpol"))
        assert fields.keys() == expected.keys()
        for path, array in expected.items():
            seen = np.asarray(fields[path], array.dtype).reshape(array.shape)
            tolerance = 0 if np.issubdtype(array.dtype, np.integer) else 1e-9  # equal bits were seen on a CPU
            np.testing.assert_allclose(seen, array, rtol=tolerance, atol=tolerance, err_msg=f"{name}{path}")
