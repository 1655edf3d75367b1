"""A policy and a value by rollouts without gradients."""

import torch
from torch import nn

torch.manual_seed(0)
policy, value = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2)), nn.Linear(4, 1)
optimizer = torch.optim.Adam([{"params": policy.parameters()}, {"params": value.parameters(), "lr": 1e-2}], 1e-3)
for _ in range(30):
    states, actions, rewards = [], [], []
    state = torch.randn(8, 4)
    with torch.no_grad():
        for _ in range(5):
            action = torch.distributions.Categorical(logits=policy(state)).sample()
            states.append(state), actions.append(action)
            rewards.append((state[:, 0] > 0).float() * action)
            state = state + 0.1 * torch.randn_like(state)
    states, actions, rewards = torch.cat(states), torch.cat(actions), torch.cat(rewards)
    gain = rewards - value(states).squeeze(-1)
    chances = torch.distributions.Categorical(logits=policy(states))
    loss = -(chances.log_prob(actions) * gain.detach()).mean() + gain.square().mean() - 0.01 * chances.entropy().mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(policy.parameters(), 0.5)
    optimizer.step()
