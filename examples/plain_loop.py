"""A training loop in plain PyTorch: no configuration, no framework."""

import sys

import torch

import unweave as uw
import unweave.augment as A

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 200
sprites = uw.Sprites(size=32)  # or any tensor of images: uint8, (n, 3, h, w)

views = uw.Views(
    {
        "color": [A.ColorJitter(0.2, 0.2, 0.2, 0.5)],
        "spatial": [A.RandomZoom((0.8, 1.25)), A.RandomRotation(180), A.RandomTranslation((0.2, 0.2))],
    },
    ungrouped=[A.Normalize((0.1,) * 3, (0.25,) * 3)],
)
encoder = uw.Encoder(uw.SmallConvNet(32), spaces=views.spaces, dim=16, hidden=128)
objective = uw.DisentangledLoss(
    uw.SimCLR(temperature=0.15), spaces=views.spaces, lambda_rule=uw.AdditiveAscent(lr=0.01, warmup=100)
)
optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-3)

for step in range(steps):
    images = sprites[torch.randint(len(sprites), (96,))]
    pair = views(images)  # pair.a, pair.b, and pair.shared: 0 for no group, m for the m-th
    terms = objective(encoder(pair.a), encoder(pair.b), pair.shared)
    terms.loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    objective.update(terms)  # the dual step on λ
    if step % 20 == 0:
        print(step, {name: round(value, 3) for name, value in terms.as_dict().items() if "invariance_gap" in name})
