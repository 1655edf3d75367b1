"""Norms of tensors."""

from perfsuite.rank.norms import norm_of


def test_elements_of_any_type_have_a_norm():
    """A module may count its steps in a parameter of integers, and another is complex or quantized."""
    import torch  # at the top it would take each worker of the tests a second

    usual = torch.tensor([3.0, 4.0])
    others = [usual.int(), usual.bool(), usual.bfloat16(), usual.to(torch.float8_e4m3fn), torch.tensor([3 + 4j]).conj()]

    assert [norm_of(one) for one in (usual, *others)] == [5, 5, 2**0.5, 5, 5, 5]
