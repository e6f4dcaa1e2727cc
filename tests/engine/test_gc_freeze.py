"""What was there before is left alone by the collector, and given back to it at the end."""

import gc

import pytest

from tacit.config.file import parse_config
from tacit.engine.gc_freeze import gc_frozen
from tacit.run.opening import open_engines, teams_of


def test_older_objects_are_given_back_whatever_happens() -> None:
    with pytest.raises(RuntimeError), gc_frozen():
        assert gc.get_freeze_count() > 1000
        raise RuntimeError
    assert gc.get_freeze_count() == 0


async def test_open_engines_are_not_collected() -> None:
    agents = {"actor": {"max_tokens": 4}}
    config = parse_config({"team": {"topology": "solo", "agents": agents}})
    async with open_engines(config, teams_of(config)):
        assert gc.get_freeze_count() > 1000
    assert gc.get_freeze_count() == 0
