"""The checks of `qenvs validate`, one test each, and what they find when the physics is broken."""

import pytest

from qenvs.validation import built_in_checks

CHECKS = built_in_checks()


@pytest.mark.parametrize("check", CHECKS, ids=[check.id for check in CHECKS])
def test_physics(check):
    result = check.run()
    assert result.passed, result
