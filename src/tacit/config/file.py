"""Reads a configuration: one YAML file, `extends:` for variants, `a.b=c` overrides."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from tacit.config import Config, Section
from tacit.errors import ConfigError, one_line
from tacit.registry import did_you_mean

RETIRED = {"train": ("overlap", "compile")}
"""Settings in older run folders that no longer exist and are ignored."""
MOVED = {"tacit.record:outside": "tacit.external:app"}
"""Topologies in older run folders that have been renamed."""
RECIPE_FOLDERS = tuple(Path(__file__).parents[up] / "recipes" for up in (1, 3))
"""When installed, and in a checkout."""


class _UniqueKeys(yaml.SafeLoader):
    """Plain YAML, except that a duplicate key is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue  # refused by the base class
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"`{key.value}` stands here twice", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def load_config(source: str | Path, overrides: Iterable[str] = ()) -> Config:
    """Read a YAML file (or a recipe by its name), apply overrides, check everything."""
    path = find_config(source)
    tree = _read_tree(path, seen=())
    for override in overrides:
        apply_override(tree, override)
    return parse_config(tree, str(path.name))


def parse_config(tree: Mapping[str, Any], place: str = "config") -> Config:
    """Check a tree of plain values; every error names its dotted path."""
    try:
        config = Config.model_validate(tree)
        # pydantic would write infinity as null and change half a surrogate pair
        json.dumps(config.model_dump(), ensure_ascii=False, allow_nan=False, default=str).encode()
    except ValidationError as error:
        raise ConfigError(f"{place}: {'; '.join(_complaints(error))}") from None
    except ValueError as error:
        raise ConfigError(f"{place}: a setting cannot be written down ({error})") from None
    return config


def saved_config(tree: dict[str, Any], place: str) -> Config:
    """The config of a run folder, which may have been written by an older version."""
    return parse_config(_modern(tree), place)


def find_config(source: str | Path) -> Path:
    """The file itself, a run folder's resolved config, or a recipe that ships."""
    path = Path(source)
    if path.is_dir() and (path / "config.json").exists():
        return path / "config.json"
    if path.is_file():
        return path
    recipes = recipe_files()
    if str(source) in recipes:
        return recipes[str(source)]
    if (path / "state.json").exists():
        raise ConfigError(
            f"`{source}` is a checkpoint and no config: name its run, or begin a new one with "
            f"`tacit train CONFIG --from {source}`"
        )
    if path.is_dir():
        raise ConfigError(f"`{source}` is a folder without config.json, so no run: name another")
    raise ConfigError(
        f"no config file or recipe `{source}`: {did_you_mean(str(source), recipes)} "
        "(`tacit init` writes a new one)"
    )


def recipe_files() -> dict[str, Path]:
    """The recipes that come with the package, by name."""
    files = [file for folder in RECIPE_FOLDERS for file in folder.glob("*.yaml")]
    return {file.stem: file for file in sorted(files, key=lambda file: file.stem)}


def _read_tree(path: Path, seen: tuple[Path, ...]) -> dict[str, Any]:
    """A YAML or JSON file as a dict, merged over the file it `extends`."""
    if path.resolve() in seen:
        raise ConfigError(f"{path.name}: `extends` goes round in a circle")
    try:
        text = path.read_text(encoding="utf-8")
        saved = path.suffix == ".json"
        tree = _modern(json.loads(text)) if saved else yaml.load(text, _UniqueKeys)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        deep = isinstance(error, RecursionError)
        reason = "it is nested too deeply" if deep else one_line(error)
        raise ConfigError(f"{path.name} is not valid {path.suffix[1:]}: {reason}") from None
    if not isinstance(tree, dict):
        raise ConfigError(f"{path.name}: expected `key: value` lines at the top level")
    base = tree.pop("extends", None)
    if base is None:
        return tree
    if not isinstance(base, str):
        raise ConfigError(f"{path.name}: `extends` names one file or recipe, not {base!r}")
    beside = path.parent / base
    return _merge(
        _read_tree(find_config(beside if beside.is_file() else base), (*seen, path.resolve())), tree
    )


def _modern(tree: Any) -> Any:
    """A run folder's config without retired and renamed settings."""
    if not isinstance(tree, dict):
        return tree
    for section, names in RETIRED.items():
        if isinstance(old := tree.get(section), dict):
            tree[section] = {name: value for name, value in old.items() if name not in names}
    for team in [tree.get("team"), *(tree.get("teams") or {}).values()]:
        if isinstance(team, dict) and team.get("topology") in MOVED:
            team["topology"] = MOVED[team["topology"]]
    budget = tree.get("budget") or {}
    for weight, units in (("weight_tokens", ("tokens", "money")), ("weight_turns", ("turns",))):
        if isinstance(budget, dict) and not any(map(budget.get, units)):
            budget.pop(weight, None)  # a price without its unit was ignored
    return tree


def _merge(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge one tree over another; `key: null` removes a section of the base."""
    merged = dict(base)
    for key, value in over.items():
        if value is None and isinstance(merged.get(key), dict):
            del merged[key]
        elif isinstance(value, Mapping) and isinstance(merged.get(key), dict):
            merged[key] = _merge(merged[key], value)
        else:
            merged[key] = value
    return merged


def apply_override(tree: dict[str, Any], override: str) -> None:
    """Apply `a.b=c` in place; the value is read as YAML."""
    path, equals, value = override.partition("=")
    if not equals or not path:
        raise ConfigError(f"override `{override}`: write it as section.key=value")
    *parents, leaf = path.split(".")
    for parent in parents:
        node = tree.setdefault(parent, {})
        if not isinstance(node, dict):
            raise ConfigError(f"override `{override}`: `{parent}` is not a section")
        tree = node
    try:
        tree[leaf] = yaml.safe_load(value)
    except (yaml.YAMLError, ValueError, RecursionError):
        tree[leaf] = value


def _complaints(error: ValidationError) -> Iterable[str]:
    for problem in error.errors():
        place = ".".join(map(str, problem["loc"])) or "config"
        if problem["type"] == "extra_forbidden":
            known = _fields_at(problem["loc"][:-1])
            yield f"`{place}` is not a setting: {did_you_mean(str(problem['loc'][-1]), known)}"
        elif problem["type"] == "missing":
            yield f"{place} is missing"
        elif problem["type"] in ("model_type", "dict_type"):
            yield f"{place}: write `key: value` settings, not {problem['input']!r}"
        elif problem["type"] == "value_error":
            message = problem["msg"].removeprefix("Value error, ")
            yield message if place == "config" else f"{place}: {message}"
        else:
            yield f"{place}: {problem['msg'].lower()}, got {problem.get('input')!r}"


def _fields_at(location: tuple[int | str, ...]) -> list[str]:
    """Names of the settings at a dotted place, found through sections, lists and dicts."""
    model: Any = Config
    for key in location:
        field = getattr(model, "model_fields", {}).get(key)
        model = _section_in(field.annotation) if field else model
    return list(getattr(model, "model_fields", {}))


def _section_in(annotation: Any) -> Any:
    """The Section class inside `X`, `X | None` or `dict[str, X]`."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    inner = (_section_in(argument) for argument in getattr(annotation, "__args__", ()))
    return next((found for found in inner if found is not None), None)
