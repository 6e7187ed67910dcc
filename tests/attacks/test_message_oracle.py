"""Messages of minibatch SGD on chosen records: sums written out, and the law that the statistics assume."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ks_2samp

from dpfl.accounting.samplers import Sampling
from dpfl.attacks.lower_bounds import log_likelihood_ratio, simulate
from dpfl.attacks.messages import MessageRun, message_law, message_observations, message_pair
from dpfl.convex.federated_rounds import Clipping

RUN = MessageRun(3, 5, Sampling.FIXED, Clipping.RECORD, 2.0, (0.0,), 1)


@pytest.mark.parametrize(
    ("clipping", "values"),
    [(Clipping.RECORD, ({0, 2}, {0})), (Clipping.MEAN, ({0, 5}, {0, -5}))],  # the mean is clipped to 1, which is 5/5
)
def test_without_noise_a_message_shows_whether_the_record_was_drawn(clipping, values):
    seen = message_observations(
        replace(RUN, clipping=clipping),
        20,
        200,
    )
    assert seen.shape == (1, 2, 200, 1, 3)
    for world in (0, 1):
        assert set(np.round(seen[0, world], 4).ravel()) == values[world]
    drawn = (np.round(seen[0, 0]) != 0).mean()
    assert abs(drawn - 0.25) < 5 * np.sqrt(0.25 * 0.75 / 600)


@pytest.mark.parametrize("sampling", [Sampling.FIXED, Sampling.WITH_REPLACEMENT, Sampling.FULL])
@pytest.mark.parametrize("clipping", list(Clipping))
def test_messages_have_the_law_that_is_simulated(sampling, clipping):
    # Twelve comparisons, each with a false-alarm rate of 1e-4. The noise is 3 clip norms over the batch size.
    records = 5 if sampling is Sampling.FULL else 12
    run = replace(RUN, sampling=sampling, clipping=clipping, noise_stds=(9.9, 3 * 2.0 / 5))
    law = message_law(run, records, run.noise_stds[1])
    assert law.noise_multiplier == pytest.approx(3)
    seen = message_observations(run, records, 1500)[1]
    for world in (0, 1):
        if sampling is Sampling.WITH_REPLACEMENT and clipping is Clipping.MEAN:
            continue  # drawn twice, the record moves a clipped mean no further; the law is a guide there
        simulated = simulate(law, (6000, 1, 3), world=world, seed=5)
        assert ks_2samp(*(log_likelihood_ratio(each, law) for each in (seen[world], simulated))).pvalue > 1e-4


def test_mates_are_hostile_unless_the_mean_is_clipped():
    assert message_pair(RUN).mates == -1
    assert message_pair(replace(RUN, clipping=Clipping.MEAN)).mates == 0
