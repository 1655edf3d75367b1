"""A student and a teacher that follows it."""

import copy

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader

torch.manual_seed(0)
student = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8))
teacher = copy.deepcopy(student)
for parameter in teacher.parameters():
    parameter.requires_grad = False
optimizer = torch.optim.AdamW(student.parameters(), 1e-3)
for _ in range(3):
    for x in DataLoader(torch.randn(96, 16), 8, shuffle=True):
        with torch.no_grad():
            wanted = functional.softmax(teacher(x + 0.1 * torch.randn_like(x)) / 0.04, -1)
        loss = -(wanted * functional.log_softmax(student(x + 0.1 * torch.randn_like(x)) / 0.1, -1)).sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for mine, its in zip(student.parameters(), teacher.parameters(), strict=True):
                its.lerp_(mine, 0.01)
