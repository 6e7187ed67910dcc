from dpfl.reporting.report_page.epsilons import by_sampling, counts, statements
from dpfl.reporting.standing import Standing

NOISE = "accounting/bhaskar2025.csv"


def test_a_setting_appears_once_and_one_without_privacy_not_at_all(made):
    known = statements(made[0], "bhaskar2025")
    assert [(each.claimed, each.proven) for each in known] == [(1.2, 3.0), (2.93, 2.64), (2.93, 28.1)]


def test_standing_follows_from_the_three_epsilons(made):
    known = statements(made[0], "bhaskar2025")
    assert [each.standing for each in known] == [Standing.OPEN, Standing.KEPT, Standing.REFUTED]
    assert counts(known) == {Standing.KEPT: 1, Standing.REFUTED: 1, Standing.OPEN: 1}


def test_what_contraction_proves_counts_where_only_the_last_model_is_seen(changed):
    folder = changed(NOISE, lambda table: table.head(1).assign(privacy_epsilon_contraction=0.5))
    [found] = statements(folder, "bhaskar2025")
    assert (found.proven, found.observer) == (0.5, "last model")


def test_groups_are_by_what_an_epsilon_belongs_to(made):
    [(group, known)] = by_sampling(statements(made[0], "bhaskar2025")).items()
    assert group == ("poisson", "zero out", "every step") and len(known) == 3


def test_a_paper_without_noise_has_no_epsilon(made):
    assert statements(made[0], "asoodeh2020") == []
