"""Images of an episode, kept within bounds and shown or saved as a video."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_mind._checks import positive_int
from rl_mind.core import Observation
from rl_mind.env import VecEnv
from rl_mind.notebook import player


class Frames:
    """The last `max_frames` images of something, compressed (PNG), in order.

    A notebook shows it as a player with a slider; `save` writes a video.

    Args:
        fps: images per second of the player and of videos.
        max_frames: how many are kept; older ones are dropped.

    >>> frames = Frames(fps=10, max_frames=2)
    >>> for level in (0, 100, 200):
    ...     frames.append(np.full((4, 6, 3), level, np.uint8))
    >>> [int(frame[0, 0, 0]) for frame in frames]
    [100, 200]
    """

    def __init__(self, fps: float = 30.0, max_frames: int = 1000) -> None:
        if not fps > 0:
            raise ValueError(f"`fps` must be positive, got {fps}")
        self.fps = fps
        self._images: deque[bytes] = deque(maxlen=positive_int("max_frames", max_frames))

    def __len__(self) -> int:
        """Return the number of images held."""
        return len(self._images)

    def __iter__(self) -> Iterator[np.ndarray]:
        """Yield the images, `[height, width, 3]` uint8."""
        for image in self._images:
            yield np.asarray(_pillow().open(BytesIO(image)).convert("RGB"))

    def append(self, frame: Any) -> None:
        """Add an image `[height, width, 3]` of uint8; ValueError for anything else."""
        frame = np.asarray(frame)
        if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3:
            raise ValueError(
                "a frame must be a uint8 array of shape (height, width, 3), "
                f"got {frame.dtype} of shape {frame.shape}"
            )
        png = BytesIO()
        _pillow().fromarray(frame).save(png, "PNG")
        self._images.append(png.getvalue())

    def save(self, path: str | Path) -> Path:
        """Write a video: an animated image for .gif, .webp or .png, MoviePy's choice for others.

        Raises ValueError if there are no frames.
        """
        path = Path(path)
        if not self._images:
            raise ValueError("a video needs at least one frame, got none")
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix.lower() in (".gif", ".webp", ".png"):
            first, *rest = (_pillow().fromarray(frame) for frame in self)
            duration = 1000.0 / self.fps
            first.save(path, save_all=True, append_images=rest, duration=duration, loop=0)
        else:
            _movie_clip()(list(self), fps=self.fps).write_videofile(str(path), logger=None)
        return path

    def _repr_html_(self) -> str:
        return player(self._images, self.fps)


def episode_frames(
    env: VecEnv, act: Callable[[Observation], Tensor], max_frames: int = 1000
) -> Frames:
    """Play one episode of the same environment with rendering on, and return its images.

    Args:
        env: which environment to build; this one is neither stepped nor reset.
        act: chooses the actions, such as `actor.act`.
        max_frames: how many images are kept, the last ones.

    Raises ValueError if the environment cannot render to "rgb_array".
    """
    kwargs: dict[str, Any] = env.env_kwargs | {"render_mode": "rgb_array"}
    visible = VecEnv(
        env.env_name,
        1,
        wrappers=env.wrappers,
        vectorization_mode="sync",
        device=env.device,
        **kwargs,
    )
    try:
        frames = Frames(float(visible.gym_env.metadata.get("render_fps") or 30), max_frames)
        obs, done = visible.reset(), False
        frames.append(_image(visible))
        while not done:
            with torch.no_grad():
                step = visible.step(act(obs))
            obs, done = step.obs, bool(step.done)
            frames.append(_image(visible))
    finally:
        visible.close()
    return frames


def _image(env: VecEnv) -> Any:
    images = env.gym_env.render()
    if not images or images[0] is None:
        raise ValueError(
            f"{env.env_name!r} must render in mode 'rgb_array' to make frames, but gave none"
        )
    return images[0]


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("frames need Pillow: pip install 'qenvs[plots]'") from error
    return Image


def _movie_clip() -> Any:
    try:
        from moviepy.video.io.ImageSequenceClip import ImageSequenceClip
    except ImportError as error:
        raise ImportError(
            "this kind of video needs MoviePy: pip install moviepy, or save it as .gif"
        ) from error
    return ImageSequenceClip
