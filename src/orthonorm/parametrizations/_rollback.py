"""A change of modules that fails in the middle leaves them as they were."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from torch import nn

__all__ = ["all_or_nothing"]


@contextmanager
def all_or_nothing(targets: Iterable[tuple[nn.Module, str]]) -> Iterator[None]:
    """Undo what was done to modules, and to the parameter that is named of each, if the block raises.

    Args:
        targets: modules, each with the name of the parameter that is about to be parametrized.
    """
    undo = [_remember(module, name) for module, name in targets]
    try:
        yield
    except BaseException:  # Ctrl-C, too
        for restore in undo:
            restore()
        raise


def _remember(module: nn.Module, name: str) -> Callable[[], None]:
    """Return a function that gives a module its class and attributes back, and a parameter its memory."""
    cls, attributes = type(module), dict(module.__dict__)
    # Handles of hooks point to these very dictionaries; torch adds a parametrization to those that are there.
    dictionaries = [value for value in attributes.values() if isinstance(value, dict)]
    dictionaries += [child._modules for name, child in module.named_children() if name == "parametrizations"]
    contents = [(dictionary, dict(dictionary)) for dictionary in dictionaries]
    parameter = module._parameters[name]
    assert parameter is not None
    memory = parameter.data

    def restore() -> None:
        module.__class__ = cls  # type: ignore[assignment]
        module.__dict__.clear()
        module.__dict__.update(attributes)
        for dictionary, content in contents:
            dictionary.clear()
            dictionary.update(content)
        parameter.data = memory

    return restore
