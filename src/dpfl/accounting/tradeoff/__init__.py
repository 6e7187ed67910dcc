"""Trade-off functions (f-DP): distinguishability of one record, for mechanisms and for complete DP-SGD runs."""

from __future__ import annotations

from dpfl.accounting.subsampled_profiles import amplified_epsilon, poisson_add_delta, subsampled_delta
from dpfl.accounting.tradeoff.adversaries import (
    Adversary,
    Gaussian,
    Guarantee,
    dpsgd,
    dpsgd_guarantee,
    poisson_guarantee,
)
from dpfl.accounting.tradeoff.approximations import (
    clt_mu,
    h_bar_mu,
    h_mu,
    last_epoch_mu,
    poisson_clt_mu,
    shuffled_mu,
    sufficient_sigma,
)
from dpfl.accounting.tradeoff.arsinh import arsinh_delta, arsinh_guarantee, arsinh_tails
from dpfl.accounting.tradeoff.curves import Curve, epsilon_delta
from dpfl.accounting.tradeoff.duality import conjugate, delta_of, double_conjugate, from_delta, group, inverse
from dpfl.accounting.tradeoff.privacy_loss import PrivacyLoss, composed, from_pld, gaussian_tails, subsampled_tails
from dpfl.accounting.tradeoff.revealed import RevealedMixture, revealed, revealed_renyi, revealed_shuffled
from dpfl.accounting.tradeoff.subsampling import poisson_renyi, subsample

__all__ = [
    "Adversary",
    "Curve",
    "Gaussian",
    "Guarantee",
    "PrivacyLoss",
    "RevealedMixture",
    "amplified_epsilon",
    "arsinh_delta",
    "arsinh_guarantee",
    "arsinh_tails",
    "clt_mu",
    "composed",
    "conjugate",
    "delta_of",
    "double_conjugate",
    "dpsgd",
    "dpsgd_guarantee",
    "epsilon_delta",
    "from_delta",
    "from_pld",
    "gaussian_tails",
    "group",
    "h_bar_mu",
    "h_mu",
    "inverse",
    "last_epoch_mu",
    "poisson_add_delta",
    "poisson_clt_mu",
    "poisson_guarantee",
    "poisson_renyi",
    "revealed",
    "revealed_renyi",
    "revealed_shuffled",
    "shuffled_mu",
    "subsample",
    "subsampled_delta",
    "subsampled_tails",
    "sufficient_sigma",
]
