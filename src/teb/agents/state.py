"""What a learning agent leaves in a checkpoint: its modules, its optimisers' moments, its generators."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from teb.agents.protocol import State


def state_of(
    modules: Mapping[str, nn.Module],
    optimisers: Mapping[str, torch.optim.Optimizer],
    generators: Mapping[str, torch.Generator],
) -> State:
    """Parameters, buffers, optimiser moments and generators."""
    return {
        "modules": {name: module.state_dict() for name, module in modules.items()},
        "optimisers": {
            name: {str(index): dict(moments) for index, moments in optimiser.state_dict()["state"].items()}
            for name, optimiser in optimisers.items()
        },
        "generators": {name: generator.get_state() for name, generator in generators.items()},
    }


def take_up(
    state: State,
    modules: Mapping[str, nn.Module],
    optimisers: Mapping[str, torch.optim.Optimizer],
    generators: Mapping[str, torch.Generator],
) -> None:
    """Take up what `state_of` gave; hyper-parameters come from the configuration, not from the checkpoint."""
    for name, module in modules.items():
        module.load_state_dict(state["modules"][name])
    for name, optimiser in optimisers.items():
        saved = state["optimisers"][name]
        moments = {int(index): {key: value.clone() for key, value in saved[index].items()} for index in saved}
        optimiser.load_state_dict({"state": moments, "param_groups": optimiser.state_dict()["param_groups"]})
    for name, generator in generators.items():
        generator.set_state(state["generators"][name])
