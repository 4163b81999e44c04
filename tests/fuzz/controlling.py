"""Steps that read, wait, let go, differentiate or go wrong."""

from __future__ import annotations

from building import Builder, Step

_WRONG = [
    "{n} + torch.ones(7, 5, device=d)",
    "{n}.view(13)",
    "{n}[99]",
    "{n}.sum(9)",
    "torch.cat([{n}, torch.ones(5, 5, 5, 5, 5, device=d)])",
    "{n}.index_select(0, torch.tensor([99]).to(d)).cpu()",
    "{n}[torch.tensor([-99]).to(d)].cpu()",
    "{n}.expand(5, 7)",
    "{n} @ torch.ones(9, 9, device=d)",
    "{n}.as_strided((999,), (1,)).cpu()",
    "{n}.softmax(9)",
    "{n}.view(torch.int16, 3)",
    "torch.mm({n}, {n}, {n})",
    "{n}.add_(torch.ones(7, 5, 3, device=d))",
]


def settle(b: Builder) -> str:
    return "torch.shark.synchronize()"


def read(b: Builder) -> str | None:
    name = b.tensor(lambda x: not x.is_floating_point() and not x.is_complex())
    if name is None or b.choose.rarely(3):
        return f"{b.fresh()} = {b.tensor()}.cpu().to(d, copy=True)"
    ways = [f"{name}.tolist()", f"{name}.sum().item()", f"bool({name}.any())", f"len({name})"]
    return f"{b.fresh('v')} = {b.choose.pick(ways)}"


def release(b: Builder) -> str | None:
    return f"del {b.tensor()}" if len(b.tensors()) > 1 else None


def seed(b: Builder) -> str:
    return f"torch.manual_seed({b.choose.below(5)})"


def backward(b: Builder) -> str | None:
    name = b.tensor(lambda x: x.requires_grad)
    if name is None:
        return None
    return b.choose.pick(
        [
            f"{name}.sum().backward(retain_graph=True)",
            f"({name} * 2).sum().backward()",
            f"{name}.backward(torch.ones_like({name}))",
            f"{b.fresh()} = torch.autograd.grad({name}.square().sum(), {name})[0]",
        ]
    )


def track(b: Builder) -> str | None:
    name = b.tensor(lambda x: x.is_floating_point())
    return f"{b.fresh()} = {name}.detach().clone().requires_grad_()" if name else None


def mistake(b: Builder) -> str | None:
    return b.choose.pick(_WRONG).format(n=b.tensor())


STEPS: list[tuple[int, Step]] = [
    *[(5, settle), (3, read), (4, release), (1, seed), (5, backward), (2, track), (2, mistake)],
]
