"""Statuses, answers, their messages, and errors for wrong calls."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciad import SolveError, Status
from sciad.core import Solution, default_tolerances, is_traced, raise_if_failed, silent, type_error, value_error


def test_success_is_zero_and_every_status_has_a_text():
    assert Status.SUCCESS == 0
    texts = {status.text for status in Status}
    assert len(texts) == len(Status)
    assert all(text == text.strip() and not text.endswith(".") for text in texts)


def solution(status):
    return Solution(status=jnp.asarray(status, jnp.int32), stats={"n": jnp.zeros(np.shape(status))})


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (0, "succeeded"),
        (1, "reached the largest number of steps allowed"),
        ([0, 0], "all 2 lanes succeeded"),
        ([0, 2, 1], "2 of 3 lanes failed; lane 1: could not make the step small enough to meet the tolerance"),
        ([[0, 0], [0, 3]], "1 of 4 lanes failed; lane (1, 1): met a value that is not finite where it had to start"),
    ],
)
def test_messages(status, message):
    assert solution(status).message == message
    np.testing.assert_array_equal(solution(status).success, np.asarray(status) == 0)


def test_raise_if_failed():
    raise_if_failed(solution(0), throw=True)
    raise_if_failed(solution(1), throw=False)
    failed = solution([0, 1])
    with pytest.raises(SolveError, match="1 of 2 lanes failed") as caught:
        raise_if_failed(failed, throw=True)
    assert caught.value.solution is failed


def test_nothing_is_raised_while_tracing():
    @jax.jit
    def run(status):
        raise_if_failed(solution(status), throw=True)
        assert is_traced(status)
        return status

    assert run(1) == 1
    assert not is_traced(1.0)


def test_default_tolerances():
    assert default_tolerances(np.float64) == (1e-6, 1e-9)
    assert default_tolerances("complex128") == (1e-6, 1e-9)
    assert default_tolerances(np.float32) == (1e-4, 1e-6)
    assert default_tolerances(jnp.bfloat16) == (1e-4, 1e-6)


def test_sentences():
    assert str(value_error("x", 1, "two")) == "x: got 1, expected two"
    assert str(type_error("x", 1, "two", "add one")) == "x: got 1, expected two; add one"
    assert isinstance(value_error("", "", ""), ValueError)
    assert isinstance(type_error("", "", ""), TypeError)


def test_silent_progress(capsys):
    assert silent(1.0, 2.0, "text") is None
    assert capsys.readouterr() == ("", "")
