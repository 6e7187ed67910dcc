from dpfl.models.image_models import softmax_regression


def test_the_model_starts_at_zero():
    module = softmax_regression(7, 3)
    assert module.weight.shape == (3, 7) and not module.weight.any() and not module.bias.any()
