"""What an optimizer's first step does to each parameter, checked in the rank: called as the faults of rank/faults."""


def is_muons(session, trainer, meters):
    """A layer's matrix moves by an orthogonal one, which no element of AdamW's step is; all else moves as in AdamW."""
    import torch

    if not meters:  # the update is checked with another optimizer
        return
    optimizer = trainer.optimizer
    seen: list[object] = []
    step = optimizer.step

    def checked():
        before = {one: one.detach().clone() for group in optimizer.param_groups for one in group["params"]}
        step()
        if seen:
            return
        for group in optimizer.param_groups:
            for one in group["params"]:
                decayed = before[one] * (1 - group["lr"] * group["weight_decay"])
                moved = (one.detach() - decayed) / group["lr"]
                if group["orthogonal"]:
                    values = torch.linalg.svdvals(moved / (0.2 * max(one.shape) ** 0.5))
                    assert 0.6 < values.median() < 1.3, (one.shape, values)
                else:
                    assert moved.abs().median() < 1.01, (one.shape, moved)
                seen.append(one)
        shapes = [
            tuple(one.shape) for group in optimizer.param_groups if group["orthogonal"] for one in group["params"]
        ]
        assert sorted(shapes) == sorted(2 * [(64, 192), (64, 64), (64, 256), (256, 64)]), shapes

    optimizer.step = checked
    for group in optimizer.param_groups:
        group["lr"] = 0.25  # a power of two, so large that a parameter's own digits hide nothing of its step


def keeps_modes(session, trainer, meters):
    """The weights that a forward meets are those of its mode."""

    def meets(module, arguments):
        assert module.training == trainer.optimizer.param_groups[0]["train_mode"]

    if meters:
        trainer.model.register_forward_pre_hook(meets)
