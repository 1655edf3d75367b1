"""Adapters of weights in few bits are planned with software that has them."""

import pytest

from perfsuite.cli.main import main

QUESTION = ("plan", "llama_8b", "--hardware", "a100_80g_x1", "--tokens", "1e7", "--batch", "16", "-s", "2048")
QLORA = ("--set", "lora=16", "base=nf4")


def test_few_bits_are_of_transformers(capsys):
    """Megatron-core is usual on such a card, and keeps frozen weights in half precision."""
    assert main([*QUESTION, "--set", "lora=16"]) == 0
    assert "assumed: --stack megatron_core" in capsys.readouterr().out

    assert main([*QUESTION, *QLORA]) == 0
    assert "assumed: --stack deepspeed" in capsys.readouterr().out


@pytest.mark.parametrize("stack", ["megatron_core", "torchtitan", "nanotron"])
def test_software_without_few_bits_is_refused(capsys, stack):
    """With those that have them."""
    assert main([*QUESTION, "--stack", stack, *QLORA]) == 2

    told = capsys.readouterr().err
    assert f"--set base: {stack} keeps frozen weights in bf16. automodel, deepspeed, fsdp2 have nf4." in told


def test_what_fits_with_options_is_told(capsys):
    """Offload of DeepSpeed does where Automodel does not, whatever the kernel of attention."""
    asked = ["plan", "llama_8b", "--hardware", "rtx3090_x4", "--tokens", "1e7", "--batch", "16", "-s", "2048"]

    assert main([*asked, "--stack", "automodel", "--set", "attention=flash"]) == 1
    assert "some do." in capsys.readouterr().out
