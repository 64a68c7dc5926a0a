"""Names from entry points of installed packages: clashes, broken ones, wrong types; nobody else is disturbed."""

from __future__ import annotations

import json

import pytest

from kvgym.config import registry
from kvgym.config.names import table
from kvgym.errors import ConfigError, PluginError, UnknownNameError

ROUTER = '''"""A router of the test."""
class First:
    def reset(self, spec, seed): pass
    def act(self, decision): return 0
    def observe(self, records): pass
'''


@pytest.fixture
def install(tmp_path_factory, monkeypatch):
    """Maker of installed packages: (name, group, {name: path}, {module: source})."""
    registry._entry_points.cache_clear()

    def make(package, group, points, modules):
        folder = tmp_path_factory.mktemp(package)
        info = folder / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        lines = "".join(f"{name} = {path}\n" for name, path in points.items())
        (info / "entry_points.txt").write_text(f"[{group}]\n{lines}")
        for module, source in modules.items():
            (folder / f"{module}.py").write_text(source)
        monkeypatch.syspath_prepend(str(folder))

    yield make
    registry._entry_points.cache_clear()


SMALL = ("--set", "workload.groups=2", "--set", "workload.lens=[64]", "--eviction", "lru")


def test_load__an_installed_router_by_its_name(install, kvgym):
    install("first-pkg", "kvgym.routing", {"first": "first_pkg_of_test:First"}, {"first_pkg_of_test": ROUTER})
    code, out, _ = kvgym("run", "--routing", "first", "--json", *SMALL)
    assert (code, json.loads(out)["busiest_share"]) == (0, 1.0)
    code, out, _ = kvgym("list", "routing")
    assert out.splitlines()[-1].split(maxsplit=1) == ["first", "[first-pkg 1.0] A router of the test."]
    with pytest.raises(UnknownNameError, match=r"did you mean 'first'\? known: .*cache_aware.*first"):
        table("routing").load("fist")


def test_load__a_name_of_two_packages_names_both(install, kvgym):
    for package in ("one-pkg", "two-pkg"):
        module = f"{package[:3]}_of_test"
        points = {"twice": f"{module}:First", f"only_{package[:3]}": f"{module}:First"}
        install(package, "kvgym.routing", points, {module: ROUTER})
    code, out, err = kvgym("run", "--routing", "twice", *SMALL)
    assert (code, out) == (2, "")
    both = "one-pkg 1.0 (one_of_test:First) and two-pkg 1.0 (two_of_test:First) bring it"
    assert f"routing controller 'twice' is ambiguous: {both}" in err
    assert kvgym("run", "--routing", "only_two", *SMALL)[0] == 0
    listed = kvgym("list", "routing")[1]
    assert "twice                  [one-pkg 1.0, two-pkg 1.0] broken: routing controller 'twice' is ambiguous" in listed


def test_load__a_name_of_kvgym_itself_names_both(install, kvgym):
    install("greedy-pkg", "kvgym.routing", {"random": "greedy_of_test:First"}, {"greedy_of_test": ROUTER})
    with pytest.raises(PluginError, match=r"kvgym \(controllers.routing.random:Random\) and greedy-pkg 1.0"):
        table("routing").load("random")
    assert kvgym("run", "--routing", "round_robin", *SMALL)[0] == 0
    assert kvgym("run", "--routing", "controllers.routing.random:Random", *SMALL)[0] == 0


BROKEN = {
    "absent": ("no_module_of_test:X", None, "ModuleNotFoundError: No module named 'no_module_of_test'", "no module"),
    "imports": (
        "imports_of_test:X",
        "import no_such_thing_at_all",
        "no_such_thing_at_all",
        "it imports 'no_such_thing",
    ),
    "syntax": ("syntax_of_test:X", "class X(", "SyntaxError", "was never closed (syntax_of_test.py, line 1)"),
    "raises": ("raises_of_test:X", "X = 1 / 0", "ZeroDivisionError: division by zero", None),
    "exits": ("exits_of_test:X", "raise SystemExit(3)\nX = int", "SystemExit: 3", None),
    "lacks": ("lacks_of_test:X", "Y = 1", "has no attribute 'X'", "the module does not define X"),
    "plain": ("plain_of_test:X", "X = 3", "must be a class, or a function that makes objects", "broken: X is 3"),
    "methods": ("methods_of_test:X", "class X:\n    def act(self): pass", "with reset, act and observe", None),
    "form": ("form_of_test", "X = 3", "'form_of_test' is not of the form module:attr", "is not of the form"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_load__a_broken_plug_in_is_an_error_when_used_and_only_then(install, kvgym, tmp_path, name):
    path, source, message, listed = BROKEN[name]
    modules = {"fine_of_test": ROUTER} | ({} if source is None else {path.partition(":")[0]: source})
    install("sick-pkg", "kvgym.routing", {name: path, "fine": "fine_of_test:First"}, modules)
    code, out, err = kvgym("run", "--routing", name, *SMALL, "--records", "r.parquet")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"routing controller {name!r} of sick-pkg 1.0 ({path})" in err and message in err
    assert list(tmp_path.iterdir()) == []
    assert kvgym("run", "--routing", "fine", *SMALL)[0] == 0
    rows = dict(line.split(maxsplit=1) for line in kvgym("list", "routing")[1].splitlines() if line.startswith("  "))
    assert rows["fine"] == "[sick-pkg 1.0] A router of the test."
    assert rows[name].startswith("[sick-pkg 1.0]")
    assert ("broken: " in rows[name]) == (listed is not None)
    assert (listed or "") in rows[name]


@pytest.mark.parametrize(
    ("family", "value", "message"),
    [
        ("routing", "dict", "must be a class, or a function that makes objects, with reset, act and observe"),
        ("eviction", "dict", "must be a kvgym.engine.cache.policy.Policy"),
        ("rewards", "__name__", "must be a function or a class of such objects"),
        ("workloads", "dict", "must be a dataclass with generate"),
        ("costs", "dict", "must be an object with steps"),
        ("cost models", "dict", "must be a dataclass with steps"),
        ("backends", "dict", "must be a class, or a function that makes objects, that follows"),
    ],
)
def test_load__what_is_of_another_kind(family, value, message):
    with pytest.raises(PluginError, match=message):
        table(family).load(f"builtins:{value}")


@pytest.mark.parametrize("name", [3, None, ["lru"], {"use": "lru"}])
def test_load__a_name_must_be_text(name):
    with pytest.raises(ConfigError, match=r"eviction policy must be a name or module:attr, got"):
        table("eviction").load(name)


def test_load__errors_tell_where_in_the_plug_in(install):
    source = "def broken():\n    return undefined_name\n\nX = broken()\n"
    install("deep-pkg", "kvgym.eviction", {"deep": "deep_of_test:X"}, {"deep_of_test": source})
    with pytest.raises(
        PluginError, match=r"NameError: name 'undefined_name' is not defined \(.*deep_of_test.py, line 2"
    ):
        table("eviction").load("deep")


def test_registry__unlisted_names_load_but_are_not_iterated_over():
    eviction = table("eviction")
    assert "belady" not in list(eviction) and len(eviction) == len(list(eviction))
    assert eviction.load("belady").oracle
    with pytest.raises(UnknownNameError, match="did you mean 'belady'"):
        eviction.load("belay")
