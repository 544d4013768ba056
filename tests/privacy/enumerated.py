"""Privacy of integer noise by enumeration of its law; nothing is shared with the package."""

import math

import numpy as np


def discrete_gaussian(variance, span):
    k = np.arange(-span, span + 1)
    p = np.exp(-(k**2) / (2 * variance))
    return p / math.fsum(p)


def added(masses, times):
    out = masses
    for _ in range(times - 1):
        out = np.convolve(out, masses)
    return out


def stretched(masses, factor):
    out = np.zeros(factor * (len(masses) - 1) + 1)
    out[::factor] = masses
    return out


def delta_of_shift(masses, shift, epsilon):
    """Hockey-stick divergence at epsilon of a law of one integer from itself shifted."""
    apart = np.zeros(shift)
    p, q = np.concatenate([masses, apart]), np.concatenate([apart, masses])
    return math.fsum(np.maximum(p - math.exp(epsilon) * q, 0.0))


def delta_of_move(variance, move, epsilon):
    """Exact delta of discrete Gaussian noise in several entries, moved by a vector of integers."""
    span = math.ceil(14 * math.sqrt(variance))
    law = np.ones(1)
    for m in (abs(m) for m in move if m):
        law = np.convolve(law, stretched(discrete_gaussian(variance, span), m))
    at = np.arange(len(law)) - len(law) // 2
    loss = (sum(m * m for m in move) - 2 * at) / (2 * variance)
    return math.fsum(law * np.maximum(-np.expm1(epsilon - loss), 0.0))


def negative_binomial(shape, scale, entries):
    """Masses on 0..entries-1 of the negative binomial with p = exp(-1 / scale)."""
    k = np.arange(entries - 1)
    steps = np.log((k + shape) / (k + 1)) - 1 / scale
    start = shape * math.log(-math.expm1(-1 / scale))
    return np.exp(start + np.concatenate([[0.0], np.cumsum(steps)]))


def share_difference(shape, scale, span):
    p = negative_binomial(shape, scale, 3 * span)
    one_side = [math.fsum(p[z:] * p[: len(p) - z]) for z in range(span + 1)]
    return np.array(one_side[:0:-1] + one_side)


def largest_log_ratio(masses, shift):
    """Maximum of |ln P(z) - ln P(z + shift)| over the places that the array covers."""
    log = np.log(masses)
    return np.abs(log[shift:] - log[:-shift]).max()
