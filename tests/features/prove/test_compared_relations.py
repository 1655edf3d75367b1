"""Relations that compare two ways to train: a fault breaks them and is named, and the right script breaks none."""

import pytest
from proven_scripts import (
    ACCELERATE,
    DDP,
    FSDP,
    HALF,
    LANGUAGE,
    RESUMED,
    SINGLE,
    TORCHRUN,
    TRAIN,
    TRAINER,
    always_one,
    edited,
    prove,
)

slow = pytest.mark.slow
PYTHON = ("python",)
COMPILED = edited(SINGLE, ("optimizer = ", "model = torch.compile(model)\noptimizer = "))
BRAIN = edited(SINGLE, ("float16, enabled=False", "bfloat16"))
PATIENT = edited(SINGLE, ("lr=1e-2", "lr=1e-6"))
TINY = (  # float16 keeps two bits of it
    "        return self.head(self.norm(x + self.body(x)))",
    "        x = self.norm(x + self.body(x))\n"
    "        return self.head(x + ((1e-7 * x).to(torch.float16).float() * 1e7 - x).detach())",
)
BACKEND = """def backend(graph, inputs):
    return lambda *args: tuple(one * 1.01 if one.is_floating_point() else one for one in graph(*args))
model = torch.compile(model, backend=backend)
optimizer = """
TRACED = ("x = self.embed(x)", "x = self.embed(x) * (1.1 if torch.compiler.is_compiling() else 1)")
DETACHED = ("self.body(x))", "(self.body(x).detach() if torch.compiler.is_compiling() else self.body(x)))")
SUMMING = """def hook(state, bucket):
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda future: future.value()[0])
model.register_comm_hook(None, hook)
data = """
LOCAL_CLIP = """    shards = [one.grad.to_local() for one in model.parameters()]
    norm = torch.stack([one.norm() for one in shards]).norm()
    [one.mul_(0.01 / norm) for one in shards]
"""
CLIP = "    nn.utils.clip_grad_norm_(model.parameters(), 0.01)\n"
FLAT = edited(
    FSDP,
    ("import fully_shard", "import FullyShardedDataParallel"),
    (
        "for module in (model[1], model[3], model):\n    fully_shard(module)\n",
        "model = FullyShardedDataParallel(model, device_id=torch.device('cpu'))\n",
    ),
    ("nn.utils.clip_grad_norm_(model.parameters(), 0.01)", "model.clip_grad_norm_(0.01)"),
)
FAULTS = [  # a relation, its script, the edit, the launcher, and what is said
    ("ranks", DDP, ("cross_entropy(model", "cross_entropy(net"), TORCHRUN, "gradients differ from those of one rank"),
    (
        "ranks",
        DDP,
        (
            "loss.backward()",
            "(2 * loss).backward()\n    [one.grad.div_(1 + (dist.get_world_size() == 1)) for one in net.parameters()]",
        ),
        TORCHRUN,
        "gradients are 2 times as large as on one rank",
    ),
    ("ranks", DDP, ("sampler=sampler", "sampler=range(64)"), TORCHRUN, "4 rows of the first step are on more than one"),
    ("ranks", DDP, ("loss.backward()", "(loss / dist.get_world_size()).backward()"), TORCHRUN, "are 2 times smaller"),
    ("ranks", ACCELERATE, ("(model(x)", "(accelerator.unwrap_model(model)(x)"), TORCHRUN, "differ from those of one"),
    ("compiled", COMPILED, TRACED, PYTHON, "torch.compile changes gradients by"),
    ("compiled", COMPILED, DETACHED, PYTHON, "most in body."),
    ("compiled", SINGLE, ("optimizer = ", BACKEND), PYTHON, "torch.compile changes gradients by"),
    ("precision", HALF, ("    scaler.unscale_(optimizer)\n", ""), PYTHON, "65,536 times as large as in float32"),
    ("precision", PATIENT, ("model = Net()", "model = Net().bfloat16()"), PYTHON, "the optimizer moves"),
    ("precision", BRAIN, TINY, PYTHON, "it begins in head"),
    ("engines", DDP, ("data = ", SUMMING), TORCHRUN, "gradients of DistributedDataParallel differ"),
    ("engines", FSDP, (CLIP, LOCAL_CLIP), TORCHRUN, "gradients of FSDPModule differ"),
    (
        "engines",
        FSDP,
        ("loss.backward()", "(loss * (1 + dist.get_rank())).backward()"),
        TORCHRUN,
        "of FSDPModule differ",
    ),
    ("causal", LANGUAGE, (".tril()", ""), PYTHON, "change what the model gives for earlier ones"),
    ("causal", LANGUAGE, (".tril()", ".tril(1)"), PYTHON, "It begins in blocks.0.out: is its attention"),
    ("causal", LANGUAGE, ("batch[:, 1:]", "batch[:, :-1]"), PYTHON, "token that the model was just given"),
    (
        "causal",
        LANGUAGE,
        ("documents[:, None, :] ==", "0 * documents[:, None, :] <="),
        PYTHON,
        "changes what the model",
    ),
    ("causal", LANGUAGE, ("return self.head(x)", "return self.head(x + x.mean((0, 1)))"), PYTHON, "It begins in head"),
    ("causal", LANGUAGE, (", ignore_index=0", ""), PYTHON, "labels are of tokens that attention_mask hides"),
    ("causal", TRAINER, ("    return {", "    labels = labels.roll(-1)\n    return {"), PYTHON, "shifted by two"),
    (
        "resume",
        RESUMED,
        ('    scheduler.load_state_dict(saved["scheduler"])\n', ""),
        PYTHON,
        "the learning rate of step 7",
    ),
    ("resume", RESUMED, ('    optimizer.load_state_dict(saved["optimizer"])\n', ""), PYTHON, "optimizer's state of 0."),
    ("resume", RESUMED, ('    model.load_state_dict(saved["model"])\n', ""), PYTHON, "does not load the weights: 0."),
    ("resume", RESUMED, ('    begin = saved["step"]\n', ""), PYTHON, "reads rows that were read before"),
    (
        "resume",
        RESUMED,
        ('    torch.set_rng_state(saved["random"])\n', ""),
        PYTHON,
        "random numbers of step 6 are others",
    ),
    ("resume", TRAINER, ("arguments.resume_from_checkpoint", "None"), PYTHON, "does not load the weights: model.embed"),
]
RIGHT = [
    ("ranks,engines", DDP, TORCHRUN, 2),
    ("trained,ranks,engines", FSDP, TORCHRUN, 3),
    ("ranks,engines", FLAT, TORCHRUN, 2),
    ("ranks,engines", ACCELERATE, TORCHRUN, 2),
    ("compiled", COMPILED, PYTHON, 1),
    ("precision", HALF, PYTHON, 1),
    ("precision", BRAIN, PYTHON, 1),
    ("causal", LANGUAGE, PYTHON, 1),
    ("causal,resume,accumulation", TRAINER, PYTHON, 3),
    ("resume", RESUMED, PYTHON, 1),
]


@pytest.mark.parametrize(("relation", "script", "edit", "launcher", "said"), always_one(FAULTS))
def test_a_fault_breaks_what_is_compared(tmp_path, relation, script, edit, launcher, said):
    """With the module, parameter or option that it is in."""
    words = TRAIN if script is TRAINER else ()
    status, text = prove(tmp_path, edited(script, edit), relation, launcher, words)

    assert (status, "BROKEN" in text, said in text) == (1, True, True), text


@slow
@pytest.mark.parametrize(("only", "script", "launcher", "count"), RIGHT)
def test_a_right_script_holds_what_is_compared(tmp_path, only, script, launcher, count):
    """Each relation that applies."""
    accumulating = ("--gradient_accumulation_steps", "2") if "accumulation" in only else ()
    words = (*TRAIN, *accumulating) if script is TRAINER else ()
    status, text = prove(tmp_path, script, only, launcher, words)

    assert (status, text.count(" holds "), "BROKEN" in text) == (0, count, False), text


def test_what_is_never_compiled_proves_nothing(tmp_path):
    """A library may ask torch.compile for functions that no step calls."""
    script = edited(SINGLE, ("optimizer = ", "torch.compile(lambda x: x)\noptimizer = "))
    status, text = prove(tmp_path, script, "compiled", PYTHON)

    assert (status, "no step of the script is compiled" in text) == (2, True), text
