"""The published snippets run as they stand; the files beside this one are verbatim."""

import runpy
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


def run(name: str, **names: object) -> dict[str, object]:
    """Global names left by a snippet that starts with these names."""
    return runpy.run_path(str(HERE / f"{name}.py"), init_globals=names)


@pytest.mark.claims("G-CR-1", "G-CR-2", "G-CR-3", "G-CR-4", "G-IF-7")
def test_cleanrl_style_loop(capsys):
    left = run("cleanrl_style_loop")
    assert capsys.readouterr().out.startswith("24 episodes, mean return 0.0686")
    returns, fidelities = zip(*left["finished"], strict=True)  # type: ignore[call-overload]
    assert sum(returns) / 24 == pytest.approx(sum(fidelities) / 24, abs=1e-6)


@pytest.mark.claims("G-NA-3", "G-IF-6")
def test_normalised_actions():
    import qenvs
    from qenvs.wrappers import GymnasiumEnv

    env = run("normalised_actions", qenvs=qenvs, GymnasiumEnv=GymnasiumEnv)["env"]
    assert repr(env.action_space) == "Box(-1.0, 1.0, (1,), float32)"  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.claims("G-SB-1", "G-SB-2", "G-IF-10")
def test_stable_baselines3_sac():
    pytest.importorskip("stable_baselines3")
    assert run("sb3_sac")["model"].num_timesteps >= 20_000  # type: ignore[attr-defined]
