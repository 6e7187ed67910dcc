"""What torch is set to before it trains on a GPU; no GPU is needed."""

import os

import pytest
import torch

from dpfl import gpu
from dpfl.errors import InputError


@pytest.fixture
def settings(monkeypatch):
    """Torch's own defaults, and what was there again afterwards."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = True  # monkeypatch could not set it back
    with torch.backends.cudnn.flags(benchmark=True, deterministic=False):
        for name in gpu._ENVIRONMENT:
            monkeypatch.delenv(name, raising=False)
        yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def test_a_gpu_computes_in_full_precision_and_repeats_its_bits(settings, monkeypatch):
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "mine")
    gpu.prepare()
    cudnn = torch.backends.cudnn
    assert (cudnn.allow_tf32, cudnn.deterministic, cudnn.benchmark) == (False, True, False)
    assert torch.get_float32_matmul_precision() == "highest"
    assert not torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8" and os.environ["PYTORCH_CUDA_ALLOC_CONF"] == "mine"


def test_what_the_user_set_by_the_newer_name_stays(settings, monkeypatch):
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "mine")
    gpu.prepare()
    assert "PYTORCH_CUDA_ALLOC_CONF" not in os.environ


@pytest.mark.parametrize(("cuda", "said"), [(None, "is built without CUDA"), ("12.6", "on this machine")])
def test_a_torch_without_a_gpu_says_why_in_one_line(monkeypatch, cuda, said):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    with pytest.raises(InputError, match=f"torch finds no GPU.* {said}") as caught:
        gpu.require()
    assert "\n" not in str(caught.value)
