"""Auto: an explicit method while the problem is not stiff, an implicit one while it is, changed over as it goes.

Stiffness is where stability, not accuracy, limits the explicit step: where h times the size of the Jacobian's
eigenvalues reaches the edge of the stability region. The explicit method sees an estimate of that for free, from two
stages at the same time; the implicit one has the Jacobian. A change needs many steps in a row that say the same.
Hairer, Wanner, "Solving Ordinary Differential Equations II", section IV.2, "Automatic stiffness detection".
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PyTree

from sciad.ode._method import Method, Norm, Step, System, no_norm
from sciad.ode._rodas5p import Rodas5P
from sciad.ode._structure import Dense, Structure
from sciad.ode._tsit5 import Tsit5

_EDGE = 1.5  # well inside the stability region, which ends at -3.5 on the real axis: near it the step wavers
_WELL_INSIDE = 0.7  # so far that the change back is not for a few steps
_STEPS = 12  # so many steps for a change; five that say otherwise undo one
_MOST_DENSE = 4000


class _Carry(NamedTuple):
    first: Array  # f at the start of the step, which both methods begin with
    stiff: Array
    evidence: Array  # steps that spoke for a change, net
    num_f: Array
    num_jacobians: Array


class Auto(Method):
    """Tsit5 where the problem is not stiff and Rodas5P where it is: the default of `solve`.

    A problem that is never stiff costs what Tsit5 alone costs; one that always is, some twenty explicit steps more
    than Rodas5P alone. Compiling takes as long as for both. Beyond 4000 states whose Jacobian has no structure it is
    Tsit5 alone: the Jacobian would not fit into memory.

    Parameters
    ----------
    unroll : bool
        Write the stages out instead of looping over them; a solve chooses by itself.
    """

    unroll: bool = eqx.field(static=True, default=False)
    order = 5
    evaluations = 8
    dense_evaluations = Rodas5P.dense_evaluations
    implicit = True

    def init(self, system: System, t: Array, y: Array, h: Array) -> _Carry:
        zero = jnp.zeros((), jnp.int32)
        return _Carry(system(t, y), jnp.zeros((), bool), zero, zero + 2, zero)

    def restart(self, system: System, t: Array, y: Array, h: Array, carry: _Carry) -> _Carry:
        return carry._replace(first=system(t, y), num_f=carry.num_f + 1)

    def step(self, system: System, t: Array, y: Array, h: Array, carry: _Carry, norm: Norm) -> Step:
        step, speaks_for_change = lax.cond(
            carry.stiff,
            lambda: self._stiff(system, t, y, h, carry.first, norm),
            lambda: self._nonstiff(system, t, y, h, carry.first, norm),
        )
        evidence = jnp.maximum(carry.evidence + jnp.where(speaks_for_change, 5, -1), 0)
        change = evidence >= 5 * _STEPS
        evaluations = jnp.where(carry.stiff, Rodas5P.evaluations, Tsit5.evaluations)
        tried = carry._replace(
            num_f=carry.num_f + evaluations, num_jacobians=carry.num_jacobians + carry.stiff.astype(jnp.int32)
        )
        accepted = tried._replace(
            first=step.carry, stiff=carry.stiff ^ change, evidence=jnp.where(change, 0, evidence).astype(jnp.int32)
        )
        return step._replace(carry=accepted, retry=tried)

    def can_afford(self, structure: Structure) -> bool:
        """Whether Jacobians of that structure fit into memory."""
        return structure.n <= _MOST_DENSE or not isinstance(structure, Dense)

    def interpolate(self, dense: Any, theta: Array) -> Float[Array, "n"]:
        stiff, y, y_end, rows = dense  # no branch: where the method is the same for all lanes the cost is the same
        implicit = Rodas5P().interpolate((y, y_end, rows), theta)
        explicit = Tsit5().interpolate((y, y_end, rows[:7]), theta)
        return jnp.where(stiff > 0, implicit, explicit)

    def interpolation_error(self, system: System, t: Array, h: Array, step: Step) -> Float[Array, "points n"]:
        stiff, *dense = step.dense
        check = lambda: Rodas5P().interpolation_error(system, t, h, step._replace(dense=tuple(dense)))
        return lax.cond(stiff > 0, check, lambda: jnp.zeros((self.dense_evaluations, *step.y.shape), step.y.dtype))

    def num_dense_evaluations(self, step: Step) -> Array:
        return jnp.where(step.dense[0] > 0, self.dense_evaluations, 0)

    def counts(self, carry: _Carry, tries: Array) -> dict[str, Array]:
        linear = carry.num_jacobians
        return {"num_f": carry.num_f, "num_jacobians": linear, "num_factorisations": linear}

    def unrolled(self) -> "Auto":
        return Auto(unroll=True)

    def record(self, carry: _Carry) -> Array:
        return carry.stiff

    def step_again(self, system: System, t: Array, y: Array, h: Array, record: Array) -> Step:
        first = system(t, y)
        return lax.cond(
            record,
            lambda first: self._stiff(system, t, y, h, first, no_norm)[0],
            lambda first: self._nonstiff(system, t, y, h, first, no_norm)[0],
            first,
        )

    def replay_without_branches(
        self, system: System, t: Array, x: Array, h: Array, record: Array, x_end: Array
    ) -> tuple[Array, PyTree]:
        first = system(t, x)
        # what is not asked for gets a step so short that nothing can overflow: its zero cotangents must stay zero
        short = 1e-6 * h
        stiff, _ = self._stiff(system, t, x, jnp.where(record, h, short), first, no_norm)
        nonstiff, _ = self._nonstiff(system, t, x, jnp.where(record, short, h), first, no_norm)
        pick = lambda a, b: jnp.where(record, a, b)
        return pick(stiff.y, nonstiff.y), jax.tree.map(pick, stiff.dense, nonstiff.dense)

    def _nonstiff(self, system: System, t: Array, y: Array, h: Array, first: Array, norm: Norm) -> tuple[Step, Array]:
        method = Tsit5(self.unroll)
        step = method.step(system, t, y, h, first, norm)
        y, y_end, rows = step.dense
        rows = jnp.concatenate([rows, jnp.zeros_like(rows[:1])])
        near_edge = method.reach(step, h, norm) > _EDGE
        no_work = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), _work_like(system, t, y, h))
        return step._replace(dense=(jnp.zeros((), y.dtype), y, y_end, rows), work=no_work), near_edge

    def _stiff(self, system: System, t: Array, y: Array, h: Array, first: Array, norm: Norm) -> tuple[Step, Array]:
        step, jacobian = Rodas5P(self.unroll).step_and_jacobian(system, t, y, h, first)
        well_inside = h.astype(y.dtype) * system.structure.norm(jacobian) < _WELL_INSIDE
        return step._replace(dense=(jnp.ones((), y.dtype), *step.dense)), well_inside


def _work_like(system: System, t: Array, y: Array, h: Array) -> PyTree:
    """Return the shapes of what a stiff step hands on for the check of its dense output."""
    return jax.eval_shape(lambda: Rodas5P().step(system, t, y, h, y, no_norm).work)
