"""What a notebook shows: a player for a sequence of images."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable
from uuid import uuid4

_PLAYER = """\
<div id="{name}" style="display:inline-block; font:12px sans-serif">
  <img style="display:block; max-width:100%" alt="frame">
  <button type="button" aria-label="play or pause">&#9208;</button>
  <input type="range" min="0" max="{last}" value="0" style="width:60%" aria-label="frame">
  <span></span>
</div>
<script>
(() => {{
  const frames = {frames};
  const box = document.getElementById("{name}");
  const [image, button, slider, label] = box.children;
  let timer = null;
  const show = (i) => {{
    slider.value = i;
    image.src = "data:image/png;base64," + frames[i];
    label.textContent = `${{Number(i) + 1}} / ${{frames.length}}`;
  }};
  const pause = () => {{ clearInterval(timer); timer = null; button.innerHTML = "&#9654;"; }};
  const advance = () => {{
    if (!box.isConnected) return pause();
    show((Number(slider.value) + 1) % frames.length);
  }};
  const play = () => {{ timer = setInterval(advance, {delay}); button.innerHTML = "&#9208;"; }};
  button.onclick = () => (timer === null ? play() : pause());
  slider.oninput = () => {{ pause(); show(slider.value); }};
  show(0);
  play();
}})();
</script>
"""


def player(images: Iterable[bytes], fps: float) -> str:
    """Return HTML that plays PNG images, with a slider and a button to pause.

    Everything is inside it: it works offline and in an exported notebook.

    Args:
        images: PNG files, as bytes.
        fps: images per second.
    """
    encoded = [b64encode(image).decode("ascii") for image in images]
    if not encoded:
        return "<em>no frames</em>"
    return _PLAYER.format(
        name=f"player-{uuid4().hex}",
        last=len(encoded) - 1,
        frames=json.dumps(encoded),
        delay=round(1000.0 / fps),
    )
