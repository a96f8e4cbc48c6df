"""What each loader does with a file of the plain model and of the converted one: the rows of docs/guides/loading.md."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import accelerate
import lightning
import timm
import torch
from safetensors.torch import load_file, load_model, save_file, save_model
from timm.models import load_checkpoint, register_model
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from transformers import PreTrainedConfig

import orthonorm as on
from loaders.networks import (
    ConvertedNet,
    ConvertedOfDiffusers,
    ConvertedOfLightning,
    ConvertedOfTransformers,
    Net,
    OfDiffusers,
    OfLightning,
    OfTransformers,
    converted_net_of_tests,
)

Load = Callable[[Any, str], nn.Module]


@dataclass(frozen=True)
class Loader:
    """A loader: how it is called, and what becomes of a plain file. A converted file is right with every one."""

    call: str
    """How the table names it."""
    load: Load
    """Save a model into a folder as this loader wants it, and load that into a converted model."""
    raised: tuple[type[BaseException], str] | None = None
    """The error that a plain file ends in, at the load or at the first forward."""
    ignored: bool = False
    """Whether a plain file changes nothing, with a line in the log."""
    cure: str = ""
    """The name of the cure for a plain file, in `CURES`."""
    plain: type = Net
    converted: type = ConvertedNet
    """The classes of the model."""

    def source(self, *, converted: bool) -> Any:
        """Return a new model whose file is loaded."""
        cls = self.converted if converted else self.plain
        return cls(PreTrainedConfig()) if issubclass(cls, OfTransformers) else cls()


def file_of(source: nn.Module, folder: str) -> str:
    save_file({key: value.contiguous() for key, value in source.state_dict().items()}, f"{folder}/model.safetensors")
    return f"{folder}/model.safetensors"


def torch_file_of(source: nn.Module, folder: str, **beside: Any) -> str:
    torch.save({"state_dict": source.state_dict(), **beside}, f"{folder}/model.ckpt")
    return f"{folder}/model.ckpt"


def on_meta() -> nn.Module:
    with torch.device("meta"):
        return ConvertedNet()


def into(model: nn.Module, state: dict[str, Any], **options: Any) -> nn.Module:
    model.load_state_dict(state, **options)
    return model


def by_safetensors(source: Any, folder: str) -> nn.Module:
    save_model(source, f"{folder}/model.safetensors")
    model = ConvertedNet()
    load_model(model, f"{folder}/model.safetensors")
    return model


def saved(source: Any, folder: str) -> str:
    save(source.state_dict(), checkpoint_id=folder, no_dist=True)
    return folder


def by_distributed_checkpoint(source: Any, folder: str) -> nn.Module:
    model = ConvertedNet()
    state = model.state_dict()
    load(state, checkpoint_id=saved(source, folder), no_dist=True)
    return into(model, state)


def by_set_model_state_dict(source: Any, folder: str) -> nn.Module:
    model = ConvertedNet()
    set_model_state_dict(model, source.state_dict(), options=StateDictOptions(full_state_dict=True))
    return model


def by_transformers(source: Any, folder: str) -> nn.Module:
    source.save_pretrained(folder)
    return ConvertedOfTransformers.from_pretrained(folder)


def by_diffusers(source: Any, folder: str, **options: Any) -> nn.Module:
    source.save_pretrained(folder)
    # The file says `converts` of the class that wrote it.
    return ConvertedOfDiffusers.from_pretrained(folder, converts=True, **options)


def by_accelerate(source: Any, folder: str, model: nn.Module | None = None, **options: Any) -> nn.Module:
    model = ConvertedNet() if model is None else model
    return accelerate.load_checkpoint_and_dispatch(model, file_of(source, folder), **options)


def with_empty_weights(source: Any, folder: str) -> nn.Module:
    with accelerate.init_empty_weights():
        model = ConvertedNet()
    return by_accelerate(source, folder, model, device_map={"": "cpu"})


def offloaded(source: Any, folder: str) -> nn.Module:
    devices = {"a": "disk", "b": "disk", "head": "cpu"}
    return by_accelerate(source, folder, device_map=devices, offload_folder=f"{folder}/offload", strict=True)


def by_timm(source: Any, folder: str) -> nn.Module:
    model = ConvertedNet()
    load_checkpoint(model, torch_file_of(source, folder))
    return model


def created_by_timm(source: Any, folder: str) -> nn.Module:
    if not timm.is_model(converted_net_of_tests.__name__):
        register_model(converted_net_of_tests)
    return timm.create_model(converted_net_of_tests.__name__, checkpoint_path=torch_file_of(source, folder))


def by_lightning(source: Any, folder: str) -> nn.Module:
    path = torch_file_of(source, folder, **{"pytorch-lightning_version": lightning.__version__})
    return ConvertedOfLightning.load_from_checkpoint(path)


# The cures: with the loader's plain class, or around it.
def state_of_the_plain_model(row: Loader, source: Any, folder: str) -> nn.Module:
    if row.plain is Net:
        plain = accelerate.load_checkpoint_and_dispatch(Net(), file_of(source, folder), device_map={"": "cpu"})
    else:
        source.save_pretrained(folder)
        plain = row.plain.from_pretrained(folder)
    return into(row.source(converted=True), plain.state_dict())


def state_of_the_folded_model(row: Loader, source: Any, folder: str) -> nn.Module:
    model = ConvertedNet()
    state = on.fold(model).state_dict()
    load(state, checkpoint_id=saved(source, folder), no_dist=True)
    return into(model, state)


CURES: dict[str, tuple[str, Callable[[Loader, Any, str], nn.Module]]] = {
    "plain class": ("load the plain model, then `model.load_state_dict(plain.state_dict())`", state_of_the_plain_model),
    "folded state": ("read into `fold(model).state_dict()`, then `model.load_state_dict`", state_of_the_folded_model),
}

UNFILLED = r"\.weight was made on the meta device.*plain\.state_dict\(\)"
_NOT_THERE = r"does not have a parameter or a buffer named weight"
HF = {"plain": OfTransformers, "converted": ConvertedOfTransformers}
DIFFUSERS = {"plain": OfDiffusers, "converted": ConvertedOfDiffusers}

LOADERS = (
    Loader("torch `load_state_dict`", lambda source, _: into(ConvertedNet(), source.state_dict())),
    Loader(
        "torch `load_state_dict(assign=True)`, model on the meta device",
        lambda source, _: into(on_meta(), source.state_dict(), assign=True),
    ),
    Loader(
        "torch `to_empty`, then `load_state_dict`",
        lambda source, _: into(on_meta().to_empty(device="cpu"), source.state_dict()),
    ),
    Loader("safetensors `load_model`", by_safetensors),
    Loader(
        "safetensors `load_file`, then `load_state_dict`",
        lambda source, folder: into(ConvertedNet(), load_file(file_of(source, folder))),
    ),
    Loader(
        "`torch.distributed.checkpoint.load`",
        by_distributed_checkpoint,
        raised=(CheckpointException, r"Missing key.*a\.parametrizations\.weight\.original"),
        cure="folded state",
    ),
    Loader("`set_model_state_dict(full_state_dict=True)`", by_set_model_state_dict),
    Loader("transformers `from_pretrained`", by_transformers, (ValueError, UNFILLED), cure="plain class", **HF),
    Loader("accelerate `load_checkpoint_and_dispatch`", by_accelerate),
    Loader(
        "accelerate, with `device_map` and `strict=True`",
        lambda source, folder: by_accelerate(source, folder, device_map={"": "cpu"}, strict=True),
        (ValueError, _NOT_THERE),
        cure="plain class",
    ),
    Loader(
        "accelerate, with `device_map` alone",
        lambda source, folder: by_accelerate(source, folder, device_map={"": "cpu"}),
        ignored=True,
        cure="plain class",
    ),
    Loader(
        "accelerate, `init_empty_weights` and `device_map`",
        with_empty_weights,
        (NotImplementedError, "Cannot copy out of meta tensor"),
        cure="plain class",
    ),
    Loader("accelerate, offload to disk, `strict=True`", offloaded, (ValueError, _NOT_THERE), cure="plain class"),
    Loader("diffusers `from_pretrained`", by_diffusers, (ValueError, UNFILLED), cure="plain class", **DIFFUSERS),
    Loader(
        "diffusers `from_pretrained(low_cpu_mem_usage=False)`",
        lambda source, folder: by_diffusers(source, folder, low_cpu_mem_usage=False),
        **DIFFUSERS,
    ),
    Loader("timm `load_checkpoint`", by_timm),
    Loader("timm `create_model(checkpoint_path=...)`", created_by_timm),
    Loader("Lightning `load_from_checkpoint`", by_lightning, plain=OfLightning, converted=ConvertedOfLightning),
)
