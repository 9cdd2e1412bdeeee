"""Versions of agents and the ranges that senders ask for."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from baton.wire.versions import RANGE, newest_first, satisfies

_signs = st.sampled_from(["", "", "", ">=", "<=", ">", "<", "^", "~", "=", ">= "])
_numbers = st.sampled_from(["1", "2.0", "1.2.3", "1.2.3-rc.1", "0.0.0-0", "x", "*", "1.x", "1.2.*", "9" * 9, "1.*.2"])
_joints = st.sampled_from([" ", " ", "  ", ", ", " - ", "||", " || ", "-", ""])
_blocks = st.builds(lambda sign, number, joint: f"{sign}{number}{joint}", _signs, _numbers, _joints)
ranges = st.builds(
    lambda blocks, sign, last: "".join(blocks) + sign + last, st.lists(_blocks, max_size=3), _signs, _numbers
)
"""Texts made of the parts of ranges; more than a third of them are ranges."""


class TestSatisfies:
    @pytest.mark.parametrize(
        ("version_range", "fits", "does_not"),
        [
            pytest.param(">=1.5.0", ["1.5.0", "1.6.0", "9.0.0"], ["1.4.9", "2.0.0-rc.1"], id="the document's own"),
            pytest.param("^1.4", ["1.4.0", "1.99.0"], ["1.3.9", "2.0.0"], id="compatible"),
            pytest.param("^0.2.3", ["0.2.3", "0.2.9"], ["0.3.0", "0.2.2"], id="compatible before 1.0"),
            pytest.param("~2.1.0", ["2.1.0", "2.1.9"], ["2.2.0"], id="about"),
            pytest.param("1.x", ["1.0.0", "1.9.9"], ["2.0.0", "0.9.0"], id="any minor"),
            pytest.param("*", ["0.0.1", "7.1.0"], ["1.0.0-rc.1"], id="any release"),
            pytest.param(">=1.2 <3", ["1.2.0", "2.9.9"], ["3.0.0", "1.1.9"], id="between, with a blank"),
            pytest.param(">=1.2, <3", ["1.2.0", "2.9.9"], ["3.0.0"], id="between, with a comma"),
            pytest.param(">= 1.2 , < 3", ["1.2.0"], ["3.0.0"], id="blanks after the signs"),
            pytest.param("1.0 - 1.9", ["1.0.0", "1.9.9"], ["2.0.0"], id="from and to"),
            pytest.param("1.2.3 || ^3", ["1.2.3", "3.4.5"], ["1.2.4", "2.0.0"], id="either or"),
            pytest.param("=1.2.3", ["1.2.3", "1.2.3+build.5"], ["1.2.4"], id="exactly"),
            pytest.param(">=2.0.0-rc.1", ["2.0.0-rc.2", "2.0.0"], ["2.0.0-beta.9", "2.1.0-rc.1"], id="prereleases"),
            pytest.param("<2.0.0", ["1.9.9"], ["2.0.0-rc.1", "1.9.9-rc.1"], id="before a release, no prerelease of it"),
            pytest.param("~2.0.0-rc.1", ["2.0.0-rc.2", "2.0.1"], ["2.0.0-beta", "2.1.0-rc.1"], id="about a prerelease"),
            pytest.param("1.2.3-rc.1", ["1.2.3-rc.1"], ["1.2.3", "1.2.3-rc.2"], id="exactly a prerelease"),
            pytest.param("<=1.2 >0.2", ["1.2.9", "0.3.0"], ["1.3.0", "0.2.9"], id="up to and above a minor"),
            pytest.param("^0.0.3 || ^0.x <0.5", ["0.0.3", "0.4.9"], ["0.5.0", "1.0.0"], id="compatible before 0.1"),
        ],
    )
    def test_ranges_mean_the_same_as_in_npm(self, version_range: str, fits: list[str], does_not: list[str]) -> None:
        """`toAgent.agentVersion` is a constraint and no version (S3-5.2-i)."""
        assert [version for version in fits + does_not if satisfies(version, version_range)] == fits

    @pytest.mark.parametrize("version_range", ["latest", "", ">=1.5.0\n", "1.*.2", "n" * 500, ">=1." + "9" * 50])
    def test_a_wrong_range_is_an_error_and_not_a_no(self, version_range: str) -> None:
        """A typing mistake must not look like an agent that is too old."""
        with pytest.raises(ValueError, match="range of versions"):
            satisfies("1.0.0", version_range)

    @pytest.mark.parametrize("version", ["1.0", "v1.0.0", "latest", ""])
    def test_a_wrong_version_is_an_error(self, version: str) -> None:
        """An agent's own version is written as semver.org writes it (S3-5.2-f)."""
        with pytest.raises(ValueError, match="not a version"):
            satisfies(version, "*")

    @given(ranges, st.sampled_from(["0.0.0", "1.2.3", "1.2.3-rc.1", "2.0.0+build"]))
    @example("1.2.3-rc.1 - 2.x", "1.2.3")
    @example("x.*.X", "1.2.3")
    @example("<=2.x.*", "1.2.3")
    def test_every_range_that_the_schema_accepts_can_be_evaluated(self, version_range: str, version: str) -> None:
        """A message whose schema holds never fails later for how its range is written (S3-5.2-i)."""
        if re.fullmatch(RANGE, version_range):
            assert satisfies(version, version_range) in (True, False)
        else:
            with pytest.raises(ValueError, match="range of versions"):
                satisfies(version, version_range)


class TestNewestFirst:
    def test_numbers_are_compared_as_numbers(self) -> None:
        """1.10 comes after 1.9, and a release after its candidates."""
        assert newest_first(["1.9.0", "1.10.0-rc.1", "1.10.0"]) == ["1.10.0", "1.10.0-rc.1", "1.9.0"]

    def test_prereleases_are_in_the_order_of_semver_org(self) -> None:
        """Its own example (§11.4)."""
        labels = ["alpha", "alpha.1", "alpha.beta", "beta", "beta.2", "beta.11", "rc.1"]
        versions = [f"1.0.0-{label}" for label in labels] + ["1.0.0"]

        assert newest_first(sorted(versions)) == versions[::-1]
