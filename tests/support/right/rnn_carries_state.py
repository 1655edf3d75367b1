"""An LSTM whose state goes on with the next batch."""

import torch
from torch import nn
from torch.nn import functional

torch.manual_seed(0)
text = torch.randint(0, 50, (4, 600))
embed, rnn, head = nn.Embedding(50, 16), nn.LSTM(16, 32, batch_first=True), nn.Linear(32, 50)
parameters = [*embed.parameters(), *rnn.parameters(), *head.parameters()]
optimizer = torch.optim.Adam(parameters, 1e-3)
for _ in range(2):
    state = None
    for at in range(0, 580, 20):
        x, y = text[:, at : at + 20], text[:, at + 1 : at + 21]
        out, state = rnn(embed(x), state)
        state = tuple(one.detach() for one in state)
        loss = functional.cross_entropy(head(out).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 0.25)
        optimizer.step()
