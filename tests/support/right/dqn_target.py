"""Q-learning with a target that is copied."""

import copy
import random

import torch
from torch import nn
from torch.nn import functional

random.seed(0)
torch.manual_seed(0)
online = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
target = copy.deepcopy(online).requires_grad_(False)
optimizer = torch.optim.RMSprop(online.parameters(), 1e-3)
memory = [(torch.randn(4), random.randrange(2), random.random(), torch.randn(4)) for _ in range(200)]
for update in range(40):
    state, action, reward, after = zip(*random.sample(memory, 16), strict=True)
    state, after, action, reward = torch.stack(state), torch.stack(after), torch.tensor(action), torch.tensor(reward)
    with torch.no_grad():
        wanted = reward + 0.9 * target(after).max(-1).values
    loss = functional.smooth_l1_loss(online(state).gather(1, action[:, None]).squeeze(1), wanted)
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()
    if update % 10 == 9:
        target.load_state_dict(online.state_dict())
