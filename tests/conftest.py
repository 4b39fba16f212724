"""Settings that every test shares."""

import os

import hypothesis

os.environ.setdefault("MPLBACKEND", "Agg")  # plots are drawn without a screen

# No deadline: the first example of a property compiles. CI must not fail by the luck of a draw.
hypothesis.settings.register_profile("local", deadline=None, print_blob=True)
hypothesis.settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")
