"""What an agent sees of one batch: pictures shifted, encoded when asked for, and again once the encoder has moved."""

from __future__ import annotations

import torch
from torch import Tensor

from teb.agents.backbone import Backbone
from teb.agents.protocol import Batch
from teb.nets.augment import randomly_shifted


class Sight:
    """One batch as features for actor and critic, and as latents for explorers and representations.

    Observations of states are all of this by themselves. Of pictures, o_t is always encoded with gradient, since
    somebody will learn through it; every other step of the window is encoded without. Each is encoded once per state
    of the encoder. A picture keeps its shift, so that it is the same picture before and after a step.
    """

    def __init__(
        self,
        backbone: Backbone,
        batch: Batch,
        shifting: torch.Generator | None,
        further: torch.Generator | None,
    ) -> None:
        """`shifting` draws the shifts of o_t and o_{t+n}, as DrQ-v2 does; `further` those of whatever else is read.

        What has no generator is not shifted.
        """
        self.backbone, self.batch = backbone, batch
        self.end = batch.window_obs.shape[1] - 1
        self.further = further
        self.images: dict[int, Tensor] = {}
        self.encoded: dict[int, Tensor] = {}
        self.first: Tensor | None = None
        if backbone.pictures is not None:
            for step in (0, self.end):
                self.images[step] = self._shifted(step, shifting)

    def _shifted(self, step: int, rng: torch.Generator | None) -> Tensor:
        assert self.backbone.pictures is not None
        images, pad = self.batch.window_obs[:, step], self.backbone.pictures.config.shift
        return images if rng is None else randomly_shifted(images, pad, rng)

    def moved(self) -> None:
        """Forget what was encoded: the encoder has changed."""
        self.encoded.clear()
        self.first = None

    def features(self, step: int) -> Tensor:
        """Features of one step of the window, [B, F]; those of o_t with gradient."""
        if step not in self.encoded:
            with torch.set_grad_enabled(step == 0):
                self.encoded[step] = self.backbone.encoder(self._image(step))
        return self.encoded[step]

    def _image(self, step: int) -> Tensor:
        if step not in self.images:
            self.images[step] = self._shifted(step, self.further)
        return self.images[step]

    def learnt_from(self, *, through_encoder: bool = True) -> Batch:
        """The batch that critic and actor learn from: features as observations."""
        if self.backbone.pictures is None:
            return self.batch
        obs = self.features(0)
        return self.batch._replace(
            obs=obs if through_encoder else obs.detach(), next_obs=self.features(self.end)
        )

    def shown(self, reads: tuple[int, ...] | None, *, gradient: bool = False, slow: bool = False) -> Batch:
        """The batch as others see it: latents at the steps that they read, NaN at the others.

        With `slow` the window's are those of the slow encoder, and only `obs` is the encoder's own.
        """
        if self.backbone.pictures is None:
            return self.batch
        steps = {*range(self.end + 1)} if reads is None else {step % (self.end + 1) for step in reads}
        with torch.set_grad_enabled(gradient):
            known = {
                step: self.backbone.slow_latent(self._image(step)) if slow else self._latent(step)
                for step in sorted(steps)
            }
            obs = self._latent(0) if slow else None
        size, width = len(self.batch.reward), self.backbone.pictures.config.latent_dim
        nothing = self.batch.reward.new_full((size, width), torch.nan)
        window = torch.stack([known.get(step, nothing) for step in range(self.end + 1)], 1)
        if not gradient:
            window = window.detach()
        return self.batch._replace(
            obs=window[:, 0] if obs is None else obs if gradient else obs.detach(),
            next_obs=window[:, -1],
            window_obs=window,
            first_obs=self._first() if known else nothing[:1],
        )

    def _latent(self, step: int) -> Tensor:
        """The latent of one step, [B, D]; a trunk that features still run through carries none but o_t's gradient."""
        latent = self.backbone.latent(self.features(step))
        return latent if step == 0 else latent.detach()

    @torch.no_grad()
    def _first(self) -> Tensor:
        if self.first is None:
            self.first = self.backbone.latent(self.backbone.encoder(self.batch.first_obs))
        return self.first
