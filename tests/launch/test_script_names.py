"""Which modules of a script are its model, and how they are named."""

from small_scripts import START, measured

TRANSFORMED = """
from torch.utils.data import DataLoader, Dataset
class Normalize(nn.Module):
    def forward(self, row): return (row - row.mean()) / row.std()
class Rows(Dataset):
    normalize = Normalize()
    def __len__(self): return 400
    def __getitem__(self, number): return self.normalize(torch.randn(8))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    def forward(self, x): return self.net(x)
net = Net()
model = {wrapped}
loss_of = nn.MSELoss()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for batch in DataLoader(Rows(), batch_size=4):
    {before}
    def closure():
        optimizer.zero_grad()
        loss = loss_of(model(batch), torch.zeros(4, 8)).mul(2)
        loss.backward()
        return loss
    {steps}
"""
PLAIN = "closure(); optimizer.step()"
DDP = "torch.distributed.init_process_group('gloo') or nn.parallel.DistributedDataParallel(net)"


def operators(folder, wrapped="net", before="pass", steps=PLAIN, launcher="python"):
    """The evidence of the operators of such a script, and its phases."""
    found = measured(folder, START + TRANSFORMED.format(wrapped=wrapped, before=before, steps=steps), launcher)
    assert found.outcome == "fits", found.failure
    return found.readings["operators"]


def places(operators, phase):
    """Where the operators of a phase are."""
    return {name.partition(" @ ")[2] for name in operators.suspects if name.startswith(f"{phase}: ")}


def test_a_transform_of_the_data_is_data(tmp_path):
    """A module that a dataset calls is no model, and neither is a loss."""
    found = operators(tmp_path)

    assert found.parts["data"] >= 4 * 4
    assert places(found, "forward") == {"net.0", "net.1", "MSELoss"}


def test_a_wrapped_model_is_named_as_its_user_named_it(tmp_path):
    """Also if its inner one is called as well, as an evaluation does."""
    launcher = "torchrun --nproc-per-node 1"
    found = operators(tmp_path, DDP, "net(batch)", launcher=launcher)

    assert {"net.0", "net.1"} <= places(found, "forward") <= {"net.0", "net.1", "MSELoss", "Net"}


def test_several_models_are_named_by_their_classes(tmp_path):
    """Not by a number that no user has written."""
    found = operators(
        tmp_path, before="critic = globals().setdefault('critic', nn.Bilinear(8, 8, 1)); critic(batch, batch)"
    )

    assert {"Net.net.0", "Net.net.1", "Bilinear"} <= places(found, "forward")


def test_the_backward_of_a_closure_is_no_operator_of_the_optimizer(tmp_path):
    """An optimizer may call what computes the loss."""
    found = operators(tmp_path, steps="optimizer.step(closure)")

    assert "net.0" in places(found, "backward")
    assert "AdamW.step" not in places(found, "backward")


def test_modules_in_evaluation_mode_have_names(tmp_path):
    """One that an optimizer updates is the model, whatever its mode; another one is named within its class."""
    other = "t = globals().setdefault('t', nn.Sequential(nn.Linear(8, 8)).eval()); t(batch)"
    found = operators(tmp_path, "net.eval()", other)

    assert places(found, "forward") == {"net.0", "net.1", "MSELoss", "Sequential.0"}
    assert {"net.0", "net.1"} <= places(found, "backward")
