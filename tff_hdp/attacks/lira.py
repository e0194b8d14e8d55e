"""LiRA on the released model: was a client's example in the training at all?

Source: Carlini et al. (2022), "Membership inference attacks from first principles":
shadow models are trained with and without the example; what the attacked model says of
it is held against what they say. Shadows are trained by HDP's own process, every client
in a random half of them, and each is in turn the one that is attacked.
"""

import numpy as np
import tensorflow as tf

from tff_hdp.attacks.attacker import Attacker, Outcome
from tff_hdp.attacks.distances import interval
from tff_hdp.attacks.inversion import bar
from tff_hdp.attacks.roc import area_ends, area_under, roc
from tff_hdp.attacks.training import Training
from tff_hdp.attacks.vantage import Vantage
from tff_hdp.errors import require


def lira(attacker: Attacker, vantage: Vantage) -> Outcome:
    """The attack's curve over all clients of all shadows, under the bound.

    Scores of one shadow share its noise: the area's interval is over shadows
    (`area_over_shadows`), and the curve's band, which takes scores for independent,
    refutes nothing.

    Args:
      attacker: Its config says how many shadows (`victims`) and rounds there are.
      vantage: Of whoever gets the model.

    Raises:
      ArgumentError: If it is not, or there are too few shadows or examples.
    """
    config, target = attacker.config, attacker.target
    require(vantage.level == "outside", "level", vantage.level, "outside with lira")
    shadows, clients = config.victims, vantage.plan.num_clients
    require(shadows >= 8, "victims", shadows, "8 shadow models or more")
    most = len(target.labels)
    require(1 < clients <= most, "clients", clients, f"2..{most}, the examples")
    rng = np.random.default_rng(config.seed)
    # Each client is in half of the shadows.
    inside = rng.permuted(
        np.arange(shadows)[:, np.newaxis] % 2 == np.zeros(clients), axis=0
    )
    training, confidences = Training(target, vantage.plan), []
    progress = bar("shadow models")
    for shadow, members in enumerate(inside):
        weights = trained(attacker, training, vantage, members, rng)
        confidences.append(_confidences(attacker, weights, clients))
        progress(shadow + 1, shadows)
    confidences = np.array(confidences)
    scores, bound = likelihood_ratios(confidences, inside), vantage.bound(config.rounds)
    curve = roc(scores[inside], scores[~inside])
    area, low, high = area_over_shadows(confidences, inside)
    row = attacker.row(vantage) | {
        "shadows": shadows,
        "clients": clients,
        "sampling_probability": config.sampling_probability,
        "auc": area,
        "auc_low": low,
        "auc_high": high,
        "auc_bound": bound.auc,
    }
    return Outcome([row], curves=[(curve, vantage)])


def trained(
    attacker: Attacker,
    training: Training,
    vantage: Vantage,
    members: np.ndarray,
    rng: np.random.Generator,
) -> list[np.ndarray]:
    """The weights after all rounds, to which only members have sent anything.

    Every round is released with its noise, whoever came.

    Args:
      attacker: Whose examples clients have, and how many rounds there are.
      training: The federation.
      vantage: Of its plan.
      members: bool [clients], who has sent what it trained; others send zero.
      rng: Draws who takes part.
    """
    target, plan = attacker.target, vantage.plan
    batches = [
        (target.features[i : i + 1], target.labels[i : i + 1]) if member else None
        for i, member in enumerate(members)
    ]
    shares = np.repeat(plan.participation, plan.zone_sizes)
    state, weights = training.start, list(target.weights)
    for _ in range(attacker.config.rounds):
        present = rng.random(len(shares)) < shares
        state, weights = training.round(state, batches, present)
    return weights


def _confidences(
    attacker: Attacker, weights: list[np.ndarray], clients: int
) -> np.ndarray:
    """The logit of the probability of every client's own label, [clients] float64."""
    target = attacker.target
    stacked = [tf.constant(w[np.newaxis], tf.float64) for w in weights]
    images = tf.constant(target.features[np.newaxis, :clients], tf.float64)
    logits = target.model(stacked, images)[0].numpy()
    own = np.eye(target.num_classes, dtype=bool)[target.labels[:clients]]
    others = np.where(own, -np.inf, logits)
    return logits[own] - np.logaddexp.reduce(others, axis=1)


def area_over_shadows(
    confidences: np.ndarray, inside: np.ndarray
) -> tuple[float, float, float]:
    """The area under the curve of all scores, and its 95 % interval by the jackknife.

    Clients of one shadow share its noise, and every score depends on the other
    shadows;
    so the interval is from what the area is without each shadow, its ratios made anew.
    Scores that are few or far apart may all be in order, whichever shadow is left out,
    and give it no width: where it reaches 0 or 1, it takes in that of as many
    independent scores as there are shadows (`area_ends`).

    Args:
      confidences: [shadows, clients], confidences.
      inside: bool alike, who was in.

    Returns:
      The area, and the interval's ends, in [0, 1].
    """

    def area(chosen: np.ndarray) -> float:
        scores = likelihood_ratios(confidences[chosen], inside[chosen])
        return area_under(scores[inside[chosen]], scores[~inside[chosen]])

    shadows = np.arange(len(confidences))
    whole = area(shadows)
    without = np.array([area(shadows[shadows != i]) for i in shadows])
    _, low, high = interval(len(confidences) * whole - (len(confidences) - 1) * without)
    half = (high - low) / 2
    low, high = whole - half, whole + half
    if low <= 0.0 or high >= 1.0:
        n = len(confidences) // 2
        least, most = area_ends(whole, n, len(confidences) - n)
        low, high = min(low, least), max(high, most)
    return whole, max(0.0, low), min(1.0, high)


def likelihood_ratios(confidences: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Log of how much likelier each value is with its example in than out.

    Normal distributions with a mean of each example's own, from all other shadows, and
    one variance for all, as Carlini et al. take it where shadows are few. A mean of m
    shadows is itself off: squares are divided by 1 + 1 / m, or whoever is in, and so
    left out of that mean, would seem to be out. The distributions' constants are left
    out: by m alone they tell who is in.

    Args:
      confidences: [shadows, clients], confidences.
      inside: bool alike, who was in.

    Returns:
      [shadows, clients].
    """
    scores = np.zeros_like(confidences)
    for shadow in range(len(confidences)):
        others = np.arange(len(confidences)) != shadow
        x, here = confidences[others], inside[others]
        means, squares = {}, {}
        for kind, chosen in ((True, here), (False, ~here)):
            count = np.maximum(chosen.sum(0), 1)
            means[kind] = np.where(chosen, x, 0).sum(0) / count
            squares[kind] = (confidences[shadow] - means[kind]) ** 2 / (1 + 1 / count)
        centred = x - np.where(here, means[True], means[False])
        variance = max(float(np.mean(centred**2)), 1e-12)
        scores[shadow] = (squares[False] - squares[True]) / (2 * variance)
    return scores
