"""Train a small CNN on scikit-learn's digits, in eager PyTorch, on the CPU and on the shark device.

Both start from the same seed. The program reads the loss once per step, so on the device each step
is one window of operators; Adam's scalars change with every step and cause no new compilation.
"""

import sys
from itertools import pairwise

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 10


def load():
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    split = train_test_split(images, torch.tensor(labels), test_size=0.2, random_state=0)
    train_images, test_images, train_labels, test_labels = split
    return TensorDataset(train_images, train_labels), TensorDataset(test_images, test_labels)


def train(device, train_set, test_set):
    """The loss of each step, the counters after it, and the accuracy on the test set."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 10),
    ).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    losses, counters = [], [torch.shark.metrics()]
    for _ in range(EPOCHS):
        for images, labels in DataLoader(train_set, batch_size=64, shuffle=True, drop_last=True):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            counters.append(torch.shark.metrics())
    images, labels = test_set.tensors
    with torch.no_grad():
        right = model(images.to(device)).argmax(1) == labels.to(device)
    return losses, counters, right.float().mean().item()


def main():
    sets = load()
    cpu_losses, _, cpu_accuracy = train("cpu", *sets)
    losses, counters, accuracy = train("shark", *sets)
    pairs = list(zip(cpu_losses, losses, strict=True))
    windows = [after.windows - before.windows for before, after in pairwise(counters)]
    compiles = [after.compiles - before.compiles for before, after in pairwise(counters)]

    print("step   loss on CPU   on shark")
    for step, (cpu_loss, loss) in enumerate(pairs[:20], 1):
        print(f"{step:4d}   {cpu_loss:11.6f}   {loss:.6f}")
    difference = max(abs(loss - cpu_loss) / cpu_loss for cpu_loss, loss in pairs[:20])
    print(f"largest relative difference   {difference:.1e}")
    print(f"accuracy on CPU, on shark     {cpu_accuracy:.1%}, {accuracy:.1%}")
    print(f"windows per step              {windows[:3]}, then at most {max(windows[3:])}")
    print(f"compiles per step             {compiles[:3]}, then {sum(compiles[3:])} in all")

    follows = difference <= 1e-3 and accuracy >= 0.95 and abs(accuracy - cpu_accuracy) <= 0.01
    return 0 if follows and max(windows[3:]) == 1 and sum(compiles[3:]) == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
