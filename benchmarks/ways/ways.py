"""The ways: each turns a network into what is trained, through the public names of its library, as its users would."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import orthogonal
from torch.optim import SGD, Optimizer

import orthonorm as on
from orthonorm.functional import soft_orthogonality

from .problems import Target

__all__ = ["WAYS", "Training", "matrix"]

MOMENTUM = 0.9
PENALTY = 0.1


class Training(NamedTuple):
    """Optimizers that step together, what is added to the loss, and the factor of the orthonormal rows."""

    optimizers: list[Optimizer]
    penalty: Callable[[], Tensor] | None = None
    scale: float = 1.0


Way = Callable[[nn.Module, list[Target], float], Training]


def matrix(weight: Tensor) -> Tensor:
    """A weight as rows; its columns where it is tall."""
    rows = weight.flatten(1)
    return rows if rows.shape[0] <= rows.shape[1] else rows.mT


class _Kernel(nn.Module):
    """Between a weight of any shape and its matrix, transposed where asked: other libraries' maps see matrices."""

    def __init__(self, shape: torch.Size, transposed: bool, back: bool) -> None:
        super().__init__()
        self.shape, self.transposed, self.back = shape, transposed, back

    def forward(self, X: Tensor) -> Tensor:
        return self._to_weight(X) if self.back else self._to_matrix(X)

    def right_inverse(self, X: Tensor) -> Tensor:
        return self._to_matrix(X) if self.back else self._to_weight(X)

    def _to_matrix(self, X: Tensor) -> Tensor:
        return X.flatten(1).mT if self.transposed else X.flatten(1)

    def _to_weight(self, X: Tensor) -> Tensor:
        return (X.mT if self.transposed else X).reshape(self.shape)


def _orthonormal(targets: list[Target]) -> None:
    """Start the weights of a way that holds them on the manifold there, so that none has to move them."""
    for module, name in targets:
        nn.init.orthogonal_(module.get_parameter(name))


def _free(model: nn.Module, _: list[Target], lr: float) -> Training:
    return Training([SGD(model.parameters(), lr, MOMENTUM)])


def _he(model: nn.Module, targets: list[Target], lr: float) -> Training:
    for module, name in targets:
        nn.init.kaiming_normal_(module.get_parameter(name))
    return _free(model, targets, lr)


def _penalty(model: nn.Module, targets: list[Target], lr: float) -> Training:
    def penalty() -> Tensor:
        terms = [soft_orthogonality(matrix(module.get_parameter(name))) for module, name in targets]
        return PENALTY * torch.stack(terms).sum()

    return Training(_free(model, targets, lr).optimizers, penalty)


def _reparametrized(scale: float | None = None) -> Way:
    def way(model: nn.Module, targets: list[Target], lr: float) -> Training:
        _orthonormal(targets)
        for module, name in targets:
            on.orthogonal_weight_norm(module, name, tall="columns", scale=scale)
        return Training([SGD(on.param_groups(model), lr, MOMENTUM)], scale=scale or 1.0)

    return way


def _olm(model: nn.Module, targets: list[Target], lr: float) -> Training:
    """The paper's centred rows, in groups of at most 64 where a row is long enough."""
    _orthonormal(targets)
    for module, name in targets:
        d = module.get_parameter(name)[0].numel()
        on.orthogonal_weight_norm(module, name, center=True, group_size=min(64, d - 1))
    return Training([SGD(on.param_groups(model), lr, MOMENTUM)])


def _on_matrices(
    model: nn.Module, targets: list[Target], lr: float, register: Callable[[nn.Module, str], Any]
) -> Training:
    _orthonormal(targets)
    for module, name in targets:
        weight = module.get_parameter(name).detach().clone()
        shape = weight.shape
        if len(shape) == 2:
            register(module, name)
            continue
        parametrize.register_parametrization(module, name, _Kernel(shape, False, back=False), unsafe=True)
        register(module, name)
        parametrize.register_parametrization(module, name, _Kernel(shape, False, back=True), unsafe=True)
        setattr(module, name, weight)  # torch's map keeps its base at an assignment
    return Training([SGD(model.parameters(), lr, MOMENTUM)])


def _torch(kind: str) -> Way:
    def way(model: nn.Module, targets: list[Target], lr: float) -> Training:
        return _on_matrices(model, targets, lr, lambda module, name: orthogonal(module, name, orthogonal_map=kind))

    return way


def _geotorch(model: nn.Module, targets: list[Target], lr: float) -> Training:
    import geotorch

    return _on_matrices(model, targets, lr, geotorch.orthogonal)


def _geoopt(optimizer: str) -> Way:
    def way(model: nn.Module, targets: list[Target], lr: float) -> Training:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # it uses torch.jit.script
            import geoopt

        _orthonormal(targets)
        for module, name in targets:
            weight = module.get_parameter(name)
            wide = weight.shape[0] < weight[0].numel()
            parametrize.register_parametrization(module, name, _Kernel(weight.shape, wide, back=True), unsafe=True)
            group: Any = module.parametrizations
            columns = group[name].original.detach().clone()
            group[name].original = geoopt.ManifoldParameter(columns, manifold=geoopt.EuclideanStiefel())  # pyright: ignore[reportCallIssue]
        options = {"momentum": MOMENTUM} if optimizer == "RiemannianSGD" else {}
        return Training([getattr(geoopt.optim, optimizer)(model.parameters(), lr=lr, **options)])

    return way


def _muon(model: nn.Module, targets: list[Target], lr: float) -> Training:
    """Free weights by torch's Muon, which takes matrices only; the others by SGD at the same learning rate."""
    from torch.optim import Muon  # since torch 2.9

    weights: list[nn.Parameter] = []
    for module, name in targets:
        shape = module.get_parameter(name).shape
        if len(shape) == 2:
            weights.append(module.get_parameter(name))
        else:
            parametrize.register_parametrization(module, name, _Kernel(shape, False, back=True), unsafe=True)
            weights.append(module.get_parameter(f"parametrizations.{name}.original"))
    held = set(map(id, weights))
    rest = [param for param in model.parameters() if id(param) not in held]
    # Its own default is a weight decay of 0.1, which no other way has.
    return Training([Muon(weights, lr, weight_decay=0.0, momentum=MOMENTUM), SGD(rest, lr, MOMENTUM)])


def _ours(cls: type[Optimizer], **options: Any) -> Way:
    def way(model: nn.Module, targets: list[Target], lr: float) -> Training:
        _orthonormal(targets)
        weights = [module.get_parameter(name) for module, name in targets]
        held = set(map(id, weights))
        rest = [param for param in model.parameters() if id(param) not in held]
        return Training([cls([{"params": weights}, {"params": rest, "manifold": False}], lr=lr, **options)])  # type: ignore[call-arg]

    return way


WAYS: dict[str, Way] = {
    "plain, orthogonal initialization": _free,
    "plain, He initialization": _he,
    "torch Muon, free weights": _muon,
    "soft penalty": _penalty,
    "OLM, centred": _olm,
    "orthonorm": _reparametrized(),
    "orthonorm, scale 1.414": _reparametrized(1.414),
    "torch cayley": _torch("cayley"),
    "torch matrix_exp": _torch("matrix_exp"),
    "torch householder": _torch("householder"),
    "geotorch": _geotorch,
    "geoopt RiemannianSGD": _geoopt("RiemannianSGD"),
    "geoopt RiemannianAdam": _geoopt("RiemannianAdam"),
    "StiefelSGD": _ours(on.StiefelSGD, momentum=MOMENTUM),
    "StiefelAdam": _ours(on.StiefelAdam),
    "Landing": _ours(on.Landing, momentum=MOMENTUM),
    "StiefelMuon": _ours(on.StiefelMuon, momentum=MOMENTUM),
}
