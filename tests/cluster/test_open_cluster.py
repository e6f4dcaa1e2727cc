"""What each worker opens: the run's own config, with its share of what there is once."""

import pickle
from pathlib import Path

import pytest

from tacit.cluster.engines import HERE, RemoteEngine, model_key
from tacit.cluster.open_cluster import worker_config
from tacit.engine.base import Request, Sampling
from tacit.engine.scripted import ScriptedEngine
from tacit.errors import EngineError
from tacit.rollout.dedupe import DedupedEngine
from tests.helpers.training_runs import tiny_config

AGENTS = {
    "hinter": {"model": "mine", "trained": True, "max_tokens": 32},
    "actor": {"model": "far", "max_tokens": 16},
}


def test_limits_of_an_api_are_shared_out_and_paths_are_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    far = {"engine": "api", "model": "x", "concurrency": 16, "requests_per_minute": 60}
    config = tiny_config(
        models={
            "mine": {"path": "model", "device": "cuda:1"},
            "far": {**far, "cache_folder": "answers"},
            "fast": {"engine": "vllm", "path": "model"},
        },
        team={"topology": "hint_actor", "agents": AGENTS},
        teams={"solo": {"agents": {"actor": {"model": "fast"}}}},
        cluster={"address": "auto", "workers": 3},
    )
    mine, api, vllm = (worker_config(config).models[name] for name in ("mine", "far", "fast"))
    assert (mine.path, mine.device) == (str(tmp_path / "model"), "cuda")
    assert (api.concurrency, api.requests_per_minute, api.tokens_per_minute) == (5, 20.0, None)
    assert api.cache_folder == str(tmp_path / "answers")
    assert vllm.device == "cpu"
    assert worker_config(config).cluster.address is None
    assert worker_config(tiny_config()).models["pocket"].path == "pocket"


async def test_a_stand_in_becomes_the_workers_own_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = RemoteEngine(model_key("m"), "m")
    own = ScriptedEngine(["hello"])
    monkeypatch.setitem(HERE, model_key("m"), own)
    assert pickle.loads(pickle.dumps(stand_in)) is own
    wrapped = pickle.loads(pickle.dumps(DedupedEngine(stand_in)))
    assert isinstance(wrapped, DedupedEngine) and wrapped.engine is own
    monkeypatch.delitem(HERE, model_key("m"))
    with pytest.raises(EngineError, match="this worker has no engine for the model m"):
        pickle.loads(pickle.dumps(stand_in))
    with pytest.raises(EngineError, match="m: only the cluster's workers can ask this model"):
        await stand_in.generate(Request(messages=(), sampling=Sampling()))
