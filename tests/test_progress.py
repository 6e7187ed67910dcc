from dpfl.progress import progress_bar


def test_a_log_gets_the_first_and_the_last_word(capsys):
    with progress_bar("features", unit="images") as progress:
        for done in range(1, 101):
            progress(done, 100)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["features: 1 of 100 images", "features: 100 of 100 images"]
