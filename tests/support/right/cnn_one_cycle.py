"""A convolutional network with BatchNorm, OneCycleLR and persistent workers."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(96, 3, 8, 8), torch.randint(0, 4, (96,)))
loader = DataLoader(data, batch_size=8, shuffle=True, drop_last=True, num_workers=2, persistent_workers=True)
model = nn.Sequential(
    nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
)
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, epochs=3, steps_per_epoch=len(loader))
for _ in range(3):
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y, label_smoothing=0.1).backward()
        optimizer.step()
        schedule.step()
    model.eval()
    with torch.no_grad():
        print(sum((model(x).argmax(1) == y).sum().item() for x, y in DataLoader(data, 32)))
